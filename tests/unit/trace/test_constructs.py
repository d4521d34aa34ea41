"""Constructs of real models that once were mistaken: what is free, and that the live network is the masked one."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.flop_counter import FlopCounterMode

import meristem
from helpers import assert_is_masked_reference, go, random_target


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


def sequential(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


CASES: dict[str, tuple[Any, tuple[Tensor, ...], dict[str, int]]] = {
    "rotary": (Rotary, (torch.randint(0, 11, (2, 5)),), {"tok": 16, "qkv:heads": 4}),
    "grouped queries": (
        GroupedQueries,
        (torch.randn(2, 3, 5),),
        {"embed": 8, "q:heads": 2, "q": 3, "v": 3},
    ),
    "relative bias": (RelativeBias, (torch.randn(2, 4, 5),), {"embed": 8, "q:heads": 3, "q": 2, "v": 2}),
    "register tokens": (RegisterTokens, (torch.randn(2, 6, 5),), {"embed": 8}),
    "heads in the batch": (HeadsInBatch, (torch.randn(2, 6, 5),), {"embed": 3, "embed:2": 4}),
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
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            copy.deepcopy(model).to("meta")(*(value.to("meta") for value in inputs))
        assert 2 * meristem.count_macs(space, live.widths) == counter.get_total_flops()


def test_a_script_module_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates scripting; users still have such models
        scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(meristem.MeristemError, match="ScriptModule cannot be resized"):
        meristem.trace(scripted, torch.randn(1, 3))
