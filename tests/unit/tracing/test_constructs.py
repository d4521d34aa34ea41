"""Constructs of real models that once were mistaken: what is free, and that the live network is the masked one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.flop_counter import FlopCounterMode

import meristem
from helpers import assert_is_masked_reference, go, random_target
from meristem.testing import masked_reference


class Rotary(nn.Module):
    """As many heads as a head has dimensions, rotary halves, RMS norm: sizes cannot be told apart by value."""

    def __init__(self) -> None:
        super().__init__()
        self.n_head = self.d_head = 4
        self.tok, self.norm = nn.Embedding(11, 16), nn.RMSNorm(16)
        self.qkv, self.proj, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 11)
        self.register_buffer("freq", torch.tensor([1.0, 0.1]), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok(tokens)
        b, n, _ = x.shape
        q, k, v = (
            part.view(b, n, self.n_head, self.d_head).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, 2)
        )
        angles = torch.outer(torch.arange(n).to(self.freq), self.freq).repeat(1, 2)
        q, k = (t * angles.cos() + self.turned(t) * angles.sin() for t in (q, k))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.proj(out.transpose(1, 2).reshape(b, n, -1)))

    def turned(self, t: Tensor) -> Tensor:
        first, second = t.chunk(2, -1)
        return torch.cat([-second, first], -1)


class GroupedQueries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = 4, 2
        self.embed = nn.Linear(5, 8)
        self.q, self.k, self.v = nn.Linear(8, 12), nn.Linear(8, 6), nn.Linear(8, 6)
        self.proj, self.head = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        b, n, _ = x.shape
        q = self.q(x).view(b, n, self.num_heads, -1).transpose(1, 2)
        k, v = (layer(x).view(b, n, self.num_kv_heads, -1).transpose(1, 2) for layer in (self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v, scale=0.5, enable_gqa=True)
        return self.head(x + self.proj(out.transpose(1, 2).reshape(b, n, -1)))


class RelativeBias(nn.Module):
    """A table looked up by a buffer of positions, viewed by a shape kept in a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.bias_shape = 3, (4, 4, 3)
        self.table = nn.Parameter(torch.randn(7, 3))
        self.register_buffer("position", torch.arange(4)[:, None] - torch.arange(4)[None] + 3)
        self.embed, self.q, self.k = nn.Linear(5, 8), nn.Linear(8, 6), nn.Linear(8, 6)
        self.v, self.head = nn.Linear(8, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, self.num_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        bias = self.table[self.position.view(-1)].view(self.bias_shape).permute(2, 0, 1)
        out = (q @ k.transpose(-2, -1) * 0.5 + bias).softmax(-1) @ v
        return self.head(out.transpose(1, 2).reshape(b, n, -1))


class RegisterTokens(nn.Module):
    """Tokens of the model's own, cut off again by a fixed number: they must stay, though every size would fit."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.registers = nn.Linear(5, 8), nn.Parameter(torch.randn(1, 4, 8))
        self.mlp, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = torch.cat([self.registers.expand(len(x), -1, -1), x], 1)
        return self.head((x + self.mlp(x))[:, 4:].mean(1))


class HeadsInBatch(nn.Module):
    """Heads are folded into the batch of a convolution: its cost follows them."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 3
        self.embed, self.pool = nn.Linear(5, 12), nn.Conv1d(4, 4, 3, padding=1, groups=4)
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        x = self.embed(x).view(b, n, self.num_heads, -1).permute(0, 2, 3, 1)
        x = self.pool(x.reshape(-1, x.shape[2], n)).reshape(b, -1, n)
        return self.head(x.transpose(1, 2))


class PaddedTokens(nn.Module):
    """torch's attention is told which tokens to leave out: it repeats the mask of each sample for every head."""

    def __init__(self) -> None:
        super().__init__()
        self.ask, self.tell, self.head = nn.Linear(5, 12), nn.Linear(5, 12), nn.Linear(12, 2)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        told = self.tell(x)
        return self.head(self.attention(self.ask(x), told, told, key_padding_mask=padded)[0])


class RepeatedMask(nn.Module):
    """Heads in the batch, as an outer or an inner factor, and a mask that is repeated for them accordingly."""

    def __init__(self, outer: bool) -> None:
        super().__init__()
        self.num_heads, self.outer = 3, outer
        self.qkv, self.head = nn.Linear(5, 18), nn.Linear(6, 2)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        b, n, _ = x.shape
        order = (2, 0, 1, 3) if self.outer else (0, 2, 1, 3)
        q, k, v = (
            part.view(b, n, self.num_heads, -1).permute(order).flatten(0, 1) for part in self.qkv(x).chunk(3, -1)
        )
        mask = hidden[:, None].expand(-1, n, -1)
        mask = mask.repeat(self.num_heads, 1, 1) if self.outer else mask.repeat_interleave(self.num_heads, 0)
        out = (q @ k.transpose(1, 2) * 0.5).masked_fill(mask, -1e9).softmax(-1) @ v
        out = out.unflatten(0, (self.num_heads, b) if self.outer else (b, self.num_heads))
        return self.head(out.permute((1, 2, 0, 3) if self.outer else (0, 2, 1, 3)).flatten(2))


class Changed(nn.Module):
    """Something is made of eight units, and read."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.one, self.two, self.change = nn.Linear(5, 8), nn.Linear(8, 2), change

    def forward(self, x: Tensor) -> Any:
        x = self.one(x)
        return self.two(x * self.change(x))


class Compared(nn.Module):
    """Two widths that are never equal at full size, and a branch for the case that they are."""

    def __init__(self, one: int = 8, two: int = 6) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, one), nn.Linear(5, two)
        self.read_one, self.read_two = nn.Linear(one, 2), nn.Linear(two, 2)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.one(x), self.two(x)
        met = (a * b).sum(1, keepdim=True) if a.shape == b.shape else 0.0
        return self.read_one(a) + self.read_two(b) + met


class Cached(Changed):
    """Makes numbers for as many samples as there are once, and keeps them."""

    def __init__(self) -> None:
        super().__init__(self.kept)
        self.numbers: Tensor | None = None

    def kept(self, x: Tensor) -> Tensor:
        if self.numbers is None or len(self.numbers) < len(x):
            self.numbers = torch.full((len(x), 1), 0.5, device=x.device).cos()
        return self.numbers[: len(x)]


class FewKeys(nn.Module):
    """Four heads that share two keys, both numbers written into the code: only the size of heads may change."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.q, self.k = nn.Linear(5, 8), nn.Linear(8, 12), nn.Linear(8, 6)
        self.out, self.head = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        q = self.q(x).unflatten(-1, (4, -1)).transpose(1, 2)
        k = self.k(x).unflatten(-1, (2, -1)).transpose(1, 2).repeat_interleave(2, 1)
        mixed = (q @ k.transpose(2, 3)).softmax(-1) @ k
        return self.head(x + self.out(mixed.transpose(1, 2).flatten(2)))


class Messages(nn.Module):
    """What is sent along edges is added up in zeros as wide as what is there: one width for both, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.send, self.send_more, self.head = (
            nn.Linear(*sizes) for sizes in ((5, 8), (8, 8), (8, 8), (8, 2))
        )
        self.edges = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 0]])

    def forward(self, x: Tensor) -> Tensor:
        x, (start, end) = self.embed(x), self.edges.to(x.device)
        for send in (self.send, self.send_more):
            x = torch.tanh(torch.zeros_like(x).index_add(0, end, send(x[start])))
        return self.head(x)


class LowFrequencies(nn.Module):
    """The lowest frequencies are written into zeros as wide as what they are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.end = nn.Conv1d(2, 6, 1), nn.Conv1d(6, 1, 1)
        self.weight = nn.Parameter(torch.randn(6, 6, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fft.rfft(self.start(x))
        out = torch.zeros_like(x)
        out[:, :, :3] = torch.einsum("bix,iox->box", x[:, :, :3], self.weight.to(x.dtype))
        return self.end(torch.fft.irfft(out, n=8))


class Crossed(nn.Module):
    """torch's attention from one thing to another, with two heads: as many as keys and values are."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(5, 8), nn.Linear(5, 8), nn.Linear(8, 2)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.one(x), self.other(x)
        return self.head(one + self.attend(one, other, other, need_weights=False)[0])


class WeightOfTwo(nn.Module):
    """Two experts, and weights for two, whatever is left of them: einsum would sum these where one expert is left."""

    def __init__(self, einsum: bool) -> None:
        super().__init__()
        self.experts, self.head, self.einsum = nn.Parameter(torch.randn(2, 5, 6)), nn.Linear(6, 2), einsum

    def forward(self, x: Tensor) -> Tensor:
        each, weights = torch.einsum("bi,eio->beo", x, self.experts), x[:, :1].expand(-1, 2)
        if self.einsum:
            return self.head(torch.einsum("beo,be->bo", each, weights))
        return self.head(torch.tensordot(each[0], weights[0], dims=([0], [0])))


def sequential(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


class Sent(nn.Module):
    """Tokens are sent to experts by number, as language models do it: how many each gets depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.router, self.head = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 2)
        self.up, self.down = nn.Parameter(torch.randn(3, 6, 8)), nn.Parameter(torch.randn(3, 8, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        total = torch.zeros_like(x)
        for expert in range(3):
            rows, which = torch.where(chosen == expert)
            out = F.linear(F.relu(F.linear(x[rows], self.up[expert])), self.down[expert])
            total.index_add_(0, rows, out * weights[rows, which, None])
        return self.head(x + total)


class LastHeads(nn.Module):
    """Grouped queries in one matrix: the last two heads are key and value, looked up by their position."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim = 4, 3
        self.embed, self.qkv = nn.Linear(5, 8), nn.Linear(8, 18)
        self.proj, self.head = nn.Linear(12, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        b, n, _ = x.shape
        qkv = self.qkv(x).view(b, n, self.num_heads + 2, self.head_dim)
        q, k, v = (part.transpose(1, 2) for part in (qkv[..., :-2, :], qkv[..., [-2], :], qkv[..., [-1], :]))
        out = (q @ k.transpose(-1, -2) * 0.5).softmax(-1) @ v
        return self.head(x + self.proj(out.transpose(1, 2).reshape(b, n, self.num_heads * self.head_dim)))


class OwnLinear(nn.Linear):
    """Multiplies as it likes: what it makes and what it reads are two things, though their sizes are equal."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


HIDDEN = torch.tensor([[False, False, False, True], [False, False, True, True]])
# Torch cannot run these on meta, or does not count all of their products.
NOT_COUNTED = {
    "experts by number",
    "spectral norm",
    "distances to all rows",
    "tensordot with weights for two",
    "kept from a first run",
    "low frequencies",  # einsum multiplies where one unit is left
}
FIRST_THREE = torch.tensor([True, True, True, False])
CASES: dict[str, tuple[Any, tuple[Tensor, ...], dict[str, int]]] = {
    "rotary": (Rotary, (torch.randint(0, 11, (2, 5)),), {"tok": 16, "qkv:heads": 4, "qkv": 2}),
    "grouped queries": (
        GroupedQueries,
        (torch.randn(2, 3, 5),),
        {"embed": 8, "q:heads": 2, "q": 3, "v": 3},
    ),
    "relative bias": (RelativeBias, (torch.randn(2, 4, 5),), {"embed": 8, "q:heads": 3, "q": 2, "v": 2}),
    "register tokens": (RegisterTokens, (torch.randn(2, 6, 5),), {"embed": 8}),
    "heads in the batch": (HeadsInBatch, (torch.randn(2, 6, 5),), {"embed": 3, "embed:2": 4}),
    "padded tokens": (PaddedTokens, (torch.randn(2, 4, 5), HIDDEN), {"tell:heads": 3, "tell": 4}),
    "a mask for inner heads": (
        lambda: RepeatedMask(outer=False),
        (torch.randn(2, 4, 5), HIDDEN),
        {"qkv:heads": 3, "qkv": 2},
    ),
    "a mask for outer heads": (
        lambda: RepeatedMask(outer=True),
        (torch.randn(2, 4, 5), HIDDEN),
        {"qkv:heads": 3, "qkv": 2},
    ),
    "the largest": (lambda: Changed(lambda x: x.max(1, keepdim=True)[0]), (torch.randn(2, 5),), {"one": 8}),
    "mean and variance": (
        lambda: Changed(lambda x: sum(torch.var_mean(x, 1, keepdim=True))),
        (torch.randn(2, 5),),
        {"one": 8},
    ),
    "the smallest and the largest": (
        lambda: Changed(lambda x: sum(torch.aminmax(x, dim=1, keepdim=True))),
        (torch.randn(2, 5),),
        {"one": 8},
    ),
    "compared widths": (Compared, (torch.randn(2, 5),), {"two": 6}),
    "compared narrow widths": (lambda: Compared(9, 3), (torch.randn(2, 5),), {"two": 3}),
    "experts by number": (Sent, (torch.randn(6, 5),), {"embed": 8, "up": 6}),
    "last heads": (LastHeads, (torch.randn(2, 3, 5),), {"embed": 8, "qkv": 3}),
    "a linear layer of one's own": (
        lambda: sequential(nn.Linear(5, 8), OwnLinear(8, 8), nn.ReLU(), nn.Linear(8, 2)),
        (torch.randn(2, 3, 5),),
        {"0": 8, "1": 8},
    ),
    "a mask over samples": (
        lambda: Changed(lambda x: x[FIRST_THREE][FIRST_THREE[:3, None].any(1)].sum(0)),
        (torch.randn(4, 5),),
        {"one": 8},
    ),
    "a mask over two dimensions": (
        lambda: Changed(lambda x: x.view(2, 2, -1)[FIRST_THREE.view(2, 2)].sum(0)),
        (torch.randn(4, 5),),
        {"one": 8},
    ),
    "distances to all rows": (
        lambda: Changed(lambda x: torch.cdist(x.view(2, 2, -1), x[:3]).view(4, 3)[:, :1]),
        (torch.randn(4, 5),),
        {"one": 8},
    ),
    "nothing is joined": (
        lambda: Changed(lambda x: 1 + torch.cat([x.new_zeros(0), x.new_zeros(0)]).sum()),
        (torch.randn(4, 5),),
        {"one": 8},
    ),
    "kept from a first run": (Cached, (torch.randn(4, 5),), {"one": 8}),
    "four heads and two keys": (FewKeys, (torch.randn(2, 3, 5),), {"embed": 8, "q": 3}),
    "two heads that cross": (Crossed, (torch.randn(2, 3, 5),), {"one:heads": 2, "one": 4}),
    "messages": (Messages, (torch.randn(4, 5),), {"embed": 8}),
    "low frequencies": (LowFrequencies, (torch.randn(2, 2, 8),), {"start": 6}),
    "einsum with weights for two": (lambda: WeightOfTwo(einsum=True), (torch.randn(4, 5),), {"experts": 6}),
    "tensordot with weights for two": (lambda: WeightOfTwo(einsum=False), (torch.randn(4, 5),), {"experts": 6}),
    "positions found by units": (
        lambda: Changed(lambda x: torch.eye(4).to(x)[x.argmax(0)].sum(1)),
        (torch.randn(4, 5),),
        {"one": 8},
    ),
    "hardswish": (
        lambda: sequential(nn.Conv2d(3, 6, 1), nn.Hardswish(inplace=True), nn.Conv2d(6, 2, 1)),
        (torch.randn(2, 3, 4, 4),),
        {"0": 6},
    ),
    "embedding bag": (
        lambda: sequential(nn.EmbeddingBag(10, 8), nn.Linear(8, 3)),
        (torch.randint(0, 10, (2, 4)),),
        {"0": 8},
    ),
    "unflatten": (
        lambda: sequential(nn.Linear(5, 24), nn.Unflatten(1, (6, 2, 2)), nn.Conv2d(6, 2, 1)),
        (torch.randn(2, 5),),
        {"0": 6},
    ),
    "weight norm": (
        lambda: sequential(weight_norm(nn.Conv2d(3, 6, 1)), nn.ReLU(), nn.Conv2d(6, 2, 1)),
        (torch.randn(2, 3, 4, 4),),
        {"0.parametrizations.weight": 6},
    ),
    "spectral norm": (
        lambda: sequential(spectral_norm(nn.Conv2d(3, 6, 1)), nn.ReLU(), nn.Conv2d(6, 2, 1)),
        (torch.randn(2, 3, 4, 4),),
        {"0.parametrizations.weight": 6},
    ),
    "pooled channels last": (
        lambda: sequential(nn.Conv2d(3, 6, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)),
        (torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),),
        {"0": 6},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_free_and_exact(name: str) -> None:
    make, inputs, widths = CASES[name]
    torch.manual_seed(0)
    model = make().double().eval()
    inputs = tuple(value.double() if value.is_floating_point() else value for value in inputs)
    space = meristem.trace(model, inputs)
    assert space.full == widths
    full, live = copy.deepcopy(model), meristem.Live(model, space)
    for seed in range(3):
        go(live, random_target(space, np.random.default_rng(seed)))
        assert_is_masked_reference(live, full, inputs)
        if name in NOT_COUNTED:
            continue
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            copy.deepcopy(model).to("meta")(*(value.to("meta") for value in inputs))
        assert 2 * meristem.count_macs(space, live.widths) == counter.get_total_flops()


def test_positions_for_each_unit_pin() -> None:
    """An index that differs from unit to unit is one by position."""
    for change in (
        lambda x: x.gather(0, torch.arange(2 * x.shape[1]).view(2, -1) % 2),
        lambda x: x.scatter(0, torch.arange(2 * x.shape[1]).view(2, -1) % 2, 0.0),
        lambda x: x.scatter_add(0, torch.arange(2 * x.shape[1]).view(2, -1) % 2, x),
        lambda x: x.index_put((torch.tensor([0]),), torch.arange(1.0 * x.shape[1])),
        lambda x: x.index_add(0, torch.tensor([0]), torch.arange(1.0 * x.shape[1])[None]),
        lambda x: x.masked_scatter(torch.arange(x.shape[1]) % 2 == 0, x + 1),
    ):
        assert not meristem.trace(Changed(change), torch.randn(2, 5)).groups


def test_the_grouped_product_comes_in_blocks() -> None:
    """Torch wants full 16 bytes in a row: a unit is a block of four numbers, and other widths never occur."""

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Linear(5, 16), nn.Linear(16, 2)
            self.up, self.down = nn.Parameter(torch.randn(3, 16, 12)), nn.Parameter(torch.randn(3, 16, 12))

        def forward(self, x: Tensor) -> Tensor:
            x, ends = self.embed(x), torch.tensor([1, 2, len(x)], dtype=torch.int32, device=x.device)
            hidden = F.relu(F.grouped_mm(x, self.up, offs=ends))
            return self.head(x + F.grouped_mm(hidden, self.down.transpose(1, 2), offs=ends))

    torch.manual_seed(0)
    model, inputs = Grouped(), (torch.randn(5, 5),)
    space = meristem.trace(model, inputs)
    assert space.full == {"embed": 4, "up": 3}
    full, live = copy.deepcopy(model), meristem.Live(model, space)
    for seed in range(3):
        go(live, random_target(space, np.random.default_rng(seed)))
        reference = masked_reference(full, space, live.masks, inputs)
        torch.testing.assert_close(model(*inputs), reference.outputs[0])


@pytest.mark.parametrize("name", ["max", "min", "median"])
def test_positions_among_units(name: str) -> None:
    """Where the largest unit is counts the live ones only, so whoever uses that gets another number."""
    find = getattr(torch, name)
    space = meristem.trace(Changed(lambda x: find(x, 1, keepdim=True).indices), torch.randn(2, 5))
    assert not space.groups
    assert any("positions along it are used in mul" in pin.reason for pin in space.pinned)


class Returned(nn.Module):
    """Returns what ``make`` puts eight units into."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.one, self.two, self.make = nn.Linear(5, 8), nn.Linear(8, 2), make

    def forward(self, x: Tensor) -> Any:
        x = self.one(x)
        return self.two(x), self.make(x)


def test_positions_among_units_that_are_returned() -> None:
    returned = meristem.trace(Returned(lambda x: x.max(1).indices), torch.randn(2, 5))
    assert any("positions along it are used in the model's output" in pin.reason for pin in returned.pinned)
    assert not returned.groups
    assert meristem.trace(Returned(lambda x: x.max(1).values), torch.randn(2, 5)).full == {"one": 8}


@dataclass
class Box:
    content: Any
    again: Any = None


class Slotted:
    __slots__ = ("__content", "unset")

    def __init__(self, content: Any) -> None:
        self.__content = content


class OneSlot:
    __slots__ = "content"

    def __init__(self, content: Any) -> None:
        self.content = content


class Shelf(dict[str, Any]):
    """A dict that pytree does not open."""


class Row(list[Any]):
    """A list that pytree does not open."""


def in_itself(x: Tensor) -> Box:
    box = Box(x)
    box.again = [box, torch]
    return box


@pytest.mark.parametrize(
    "make",
    [
        Box,
        Slotted,
        OneSlot,
        in_itself,
        lambda x: Box([Box({"deep": Slotted((x,))})]),
        lambda x: Shelf(only=x),
        lambda x: Row([x]),
        lambda x: {Slotted(frozenset([x]))},
    ],
)
def test_outputs_in_containers(make: Callable[[Tensor], Any]) -> None:
    """What a model returns keeps its size, wherever it is put."""
    space = meristem.trace(Returned(make), torch.randn(2, 5))
    assert not space.groups
    assert [pin.reason for pin in space.pinned if pin.units == 8] == ["it is a model output"]


def test_a_script_module_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates scripting; users still have such models
        scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(meristem.MeristemError, match="ScriptModule cannot be resized"):
        meristem.trace(scripted, torch.randn(1, 3))


class Detector(nn.Module):
    """It keeps what scores well, so how much there is of it depends on numbers, not on widths."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.score, self.two = nn.Linear(5, 8), nn.Linear(8, 1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.one(x))
        scores = self.score(hidden)[:, 0]
        kept = (scores > scores.mean()).nonzero()[:, 0]
        best = scores[kept].argsort(descending=True)[: len(kept) // 2 + 1]
        if scores.max().item() > scores.mean().item() + 0.01:
            hidden = hidden * 2
        return self.two(hidden[kept][best]).mean(0)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_decided_by_numbers_is_no_width(seed: int) -> None:
    torch.manual_seed(seed)
    model, x = Detector(), torch.randn(16, 5)
    space = meristem.trace(model, x)
    assert space.full == {"one": 8}
    live = meristem.Live(model, space)
    live.apply(live.plan({"one": [0, 3, 5]}))
    assert model(x).shape == (3,)


class FindsNothing(Detector):
    """No score is above the bound: empty parts are joined to an empty whole."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.one(x))
        scores = self.score(hidden)[:, 0]
        found = [scores[scores > bound] for bound in (1e6, 1e7)]
        return self.two(hidden).mean(0) + torch.cat(found).sum()


def test_empty_parts_are_joined() -> None:
    assert meristem.trace(FindsNothing(), torch.randn(16, 5)).full == {"one": 8}
