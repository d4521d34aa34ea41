"""Parts of the zoo that read and write by position: graphs, mixtures of experts, frequencies, distances, rounding."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nets.common import mlp

Gather = Callable[[Tensor, Tensor, int], Tensor]


class Graph(nn.Module):
    """Messages along edges; ``collect(messages, targets, nodes)`` says how they come together at the nodes."""

    def __init__(self, collect: Gather) -> None:
        super().__init__()
        self.embed, self.message, self.update = nn.Linear(5, 8), nn.Linear(8, 6), nn.Linear(14, 7)
        self.head, self.collect = nn.Linear(7, 3), collect

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = F.gelu(self.embed(x))
        messages = F.gelu(self.message(x[edges[0]]))
        received = self.collect(messages, edges[1], len(x))
        return self.head(F.gelu(self.update(torch.cat([x, received], 1))))


def added(messages: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """The mean of what arrives, by index_add."""
    total = messages.new_zeros(nodes, messages.shape[1]).index_add_(0, targets, messages)
    count = messages.new_zeros(nodes).index_add_(0, targets, messages.new_ones(len(targets)))
    return total / count.clamp(min=1)[:, None]


def scattered(messages: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """Sum, mean and maximum by scatter, as graph libraries do it."""
    places, room = targets[:, None].expand_as(messages), messages.new_zeros(nodes, messages.shape[1])
    largest = room.scatter_reduce(0, places, messages, "amax", include_self=False)
    mean = room.scatter_reduce(0, places, messages, "mean", include_self=False)
    return room.scatter_add(0, places, messages) + largest + mean.scatter(0, places[:1], 0.5)


def put(messages: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """By assignment to positions and to a mask."""
    room = messages.new_zeros(nodes, messages.shape[1]).index_put((targets,), messages, accumulate=True)
    room[torch.arange(nodes, device=room.device) > 2] = 0.5
    room[[1, 0]] = messages[:2].gather(0, targets[:2, None].expand(-1, messages.shape[1]) % 2)
    return room.index_copy(0, targets[-1:], messages[-1:])


def in_segments(messages: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """Messages are sorted by their node."""
    lengths = torch.tensor([2, 1, 2, 1], device=messages.device)
    mean = torch.segment_reduce(messages, "mean", lengths=lengths, axis=0, unsafe=True)
    return mean + mean.index_fill(0, targets[:1], 0.5)


class FilledIn(nn.Module):
    """The vectors of an image take the places of some tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tok, self.image = nn.Embedding(11, 8), nn.Linear(5, 8)
        self.mlp, self.head = mlp(8, 12, 8), nn.Linear(8, 3)

    def forward(self, idx: Tensor, x: Tensor) -> Tensor:
        tokens = self.tok(idx)
        tokens = tokens.masked_scatter((idx == 0)[..., None].expand_as(tokens), self.image(x))
        return self.head(tokens + self.mlp(tokens))


class Experts(nn.Module):
    """Every one of four experts takes the tokens it likes best, and what they make of them is added up."""

    def __init__(self, c: int, hidden: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.router = nn.Linear(c, 4, bias=False)
        self.up = nn.Parameter(torch.randn(4, 2 * hidden, c))
        self.down = nn.Parameter(torch.randn(4, c, hidden))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, rows = self.router(tokens).softmax(-1).topk(self.capacity, 0)
        total = torch.zeros_like(tokens)
        for expert in range(4):
            gate, value = F.linear(tokens[rows[:, expert]], self.up[expert]).chunk(2, -1)
            out = F.linear(F.silu(gate) * value, self.down[expert])
            total.index_add_(0, rows[:, expert], out * weights[:, expert, None])
        return total.view(x.shape)


class SpectralConv(nn.Module):
    """Weights for the lowest frequencies of every channel; the others are set to zero."""

    def __init__(self, i: int, o: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(i, o, modes, 2) / i)

    def forward(self, x: Tensor) -> Tensor:
        low = torch.fft.rfft(x, norm="ortho")[..., : self.modes]
        mixed = torch.einsum("bim,iom->bom", low, torch.view_as_complex(self.weight))
        return torch.fft.irfft(F.pad(mixed, (0, x.shape[-1] // 2 + 1 - self.modes)), n=x.shape[-1], norm="ortho")


class FourierOperator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Conv1d(3, 8, 1)
        self.spectral, self.local = SpectralConv(8, 6, 3), nn.Conv1d(8, 6, 1)
        self.project, self.head = nn.Conv1d(6, 7, 1), nn.Conv1d(7, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lift(x)
        x = F.gelu(self.spectral(x) + self.local(x))
        return self.head(F.gelu(self.project(x)))


class Pairs(nn.Module):
    """Two vectors meet in a bilinear form."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, 8), nn.Linear(5, 7)
        self.meet, self.head = nn.Bilinear(8, 7, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.meet(torch.tanh(self.one(x)), torch.tanh(self.two(x)))))


class Prototypes(nn.Module):
    """How near a vector is to each of several that are learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.prototypes = nn.Linear(5, 8), nn.Parameter(torch.randn(6, 8))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.exp(-torch.cdist(self.embed(x), self.prototypes)))


class Rounded(nn.Module):
    """Weights and activations as they would be in eight bits; every filter has a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(5, 8), nn.Linear(8, 6), nn.Linear(6, 3)
        self.register_buffer("zero_point", torch.zeros(6, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(torch.tanh(self.one(x)), 0.02, 0, -128, 127)
        scale = (self.two.weight.detach().abs().amax(1) / 127).float()
        weight = torch.fake_quantize_per_channel_affine(self.two.weight, scale, self.zero_point, 0, -128, 127)
        return self.head(torch.tanh(F.linear(x, weight, self.two.bias)))
