"""A few networks as people write them for themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Any, ...]]


class CausalAttention(nn.Module):
    """Attention as in nanoGPT."""

    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.n_embd, self.n_head = n_embd, n_head

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (z.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class NanoGPT(nn.Module):
    """A GPT as in nanoGPT, with one matrix for tokens and logits."""

    def __init__(self, vocab: int = 64, width: int = 32, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(32, width)
        norms = [nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)]) for _ in range(depth)]
        self.norms = nn.ModuleList(norms)
        self.attn = nn.ModuleList(CausalAttention(width, heads) for _ in range(depth))
        mlps = [
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)
        ]
        self.mlp = nn.ModuleList(mlps)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for (first, second), attn, mlp in zip(self.norms, self.attn, self.mlp, strict=True):
            x = x + attn(first(x))
            x = x + mlp(second(x))
        return self.lm_head(x)


class GraphNetwork(nn.Module):
    """Messages along edges, summed where they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(6, 24), nn.Linear(24, 3)
        self.message = nn.ModuleList(nn.Linear(48, 24) for _ in range(2))
        self.update = nn.ModuleList(nn.Linear(48, 24) for _ in range(2))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x, (start, end) = self.embed(x), edges
        for message, update in zip(self.message, self.update, strict=True):
            sent = torch.relu(message(torch.cat([x[start], x[end]], 1)))
            x = x + torch.relu(update(torch.cat([x, torch.zeros_like(x).index_add(0, end, sent)], 1)))
        return self.head(x)


class FourierLayer(nn.Module):
    """A convolution by its lowest frequencies."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width)
        self.skip = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        frequencies = torch.fft.rfft(x)
        out = torch.zeros_like(frequencies)
        out[:, :, : self.modes] = torch.einsum("bix,iox->box", frequencies[:, :, : self.modes], self.weight)
        return torch.relu(torch.fft.irfft(out, n=x.shape[-1]) + self.skip(x))


class Experts(nn.Module):
    """A mixture of experts, each of which sees the tokens that are sent to it."""

    def __init__(self, width: int = 24, experts: int = 3) -> None:
        super().__init__()
        self.embed, self.gate, self.head = nn.Linear(8, width), nn.Linear(width, experts), nn.Linear(width, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, width)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        weights = self.gate(x).softmax(-1)
        mixed = sum(weights[..., i, None] * expert(x) for i, expert in enumerate(self.experts))
        return self.head(x + mixed)


class LanguageModel(nn.Module):
    """Two layers of LSTM between an embedding and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 24), nn.Linear(32, 64)
        self.rnn = nn.LSTM(24, 32, num_layers=2, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(tokens))[0])


class WaveNet(nn.Module):
    """Dilated convolutions with gates, and a sum of what leaves them."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.end = nn.Conv1d(1, 16, 1), nn.Conv1d(20, 4, 1)
        self.gates = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**i, padding=2**i) for i in range(3))
        self.residual = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(3))
        self.skip = nn.ModuleList(nn.Conv1d(16, 20, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.start(x), torch.zeros(1)
        for gate, residual, skip in zip(self.gates, self.residual, self.skip, strict=True):
            a, b = gate(x)[..., : x.shape[-1]].chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            x, total = x + residual(z), total + skip(z)
        return self.end(torch.relu(total))


OWN: dict[str, Callable[[], Made]] = {
    "nano-gpt": lambda: (NanoGPT(), (torch.randint(64, (2, 12)),)),
    "graph-network": lambda: (GraphNetwork(), (torch.randn(10, 6), torch.randint(10, (2, 20)))),
    "fourier-operator": lambda: (
        nn.Sequential(nn.Conv1d(2, 16, 1), FourierLayer(16, 5), FourierLayer(16, 5), nn.Conv1d(16, 1, 1)),
        (torch.randn(2, 2, 24),),
    ),
    "experts": lambda: (Experts(), (torch.randn(2, 5, 8),)),
    "lstm": lambda: (LanguageModel(), (torch.randint(64, (2, 12)),)),
    "wavenet": lambda: (WaveNet(), (torch.randn(2, 1, 32),)),
}
