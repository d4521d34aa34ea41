"""Nets with blocks that may be absent: a few blocks that keep their shape, as narrow as they can be."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem_bench.models.depth_starts import basic3_resnet, bottleneck4_resnet, plain3_net
from meristem_bench.models.wide_resnet import WideResNet
from nets.common import mlp
from nets.tokens import FusedAttention, MatmulAttention, TokenNet, Transposed


def residual() -> nn.Module:
    return basic3_resnet((3, 2, 2), classes=5, width=4)


def preactivation() -> nn.Module:
    return WideResNet(16, 1, classes=5)


def plain() -> nn.Module:
    return plain3_net((2, 3, 2), classes=5, width=4)


def bottleneck() -> nn.Module:
    return bottleneck4_resnet((2, 1, 2, 2), classes=5, width=2)


class Encoder(nn.Module):
    """torch's own encoder: its layers are called with masks, so an absent one is dropped from the list."""

    def __init__(self, c: int = 8, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Linear(5, c)
        layer = nn.TransformerEncoderLayer(c, 2, 12, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        for parameter in self.encoder.parameters():  # torch copies one layer: all would be alike
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.head = nn.Linear(c, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


class PreNormBlock(nn.Module):
    """A pre-norm block by hand; its attention has a causal mask in a buffer."""

    def __init__(self, c: int, hidden: int, tokens: int = 4) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.attention, self.mlp = FusedAttention(c, 2, 4, causal=tokens), mlp(c, hidden, c)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MixerBlock(nn.Module):
    """Mixes tokens, then channels."""

    def __init__(self, c: int, hidden: int, tokens: int = 4) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.mix_tokens, self.mix_channels = Transposed(mlp(tokens, 6, tokens)), mlp(c, hidden, c)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix_tokens(self.norm1(x))
        return x + self.mix_channels(self.norm2(x))


class MaskedBlock(nn.Module):
    """A pre-norm block that is called with a mask."""

    def __init__(self, c: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.attention, self.mlp = MatmulAttention(c, 2, 4), mlp(c, hidden, c)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x)) * keep
        return x + self.mlp(self.norm2(x))


class TupleBlock(nn.Module):
    """Gives what it was given, changed, and a state that is handed on."""

    def __init__(self, c: int, hidden: int) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(c), mlp(c, hidden, c)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return x + self.mlp(self.norm(x)) * state.mean(), state + 1.0


class Loop(nn.Module):
    """A list of blocks, run one after the other by hand."""

    def __init__(self, blocks: list[nn.Module], c: int) -> None:
        super().__init__()
        self.embed = nn.Linear(5, c)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(c)
        self.head = nn.Linear(c, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = self.pass_on(block, x)
        return self.head(self.norm(x).mean(1))

    def pass_on(self, block: nn.Module, x: Tensor) -> Tensor:
        return block(x)


class MaskedLoop(Loop):
    def pass_on(self, block: nn.Module, x: Tensor) -> Tensor:
        return block(x, (x.detach().mean((1, 2), keepdim=True) > 0).to(x.dtype) + 0.5)


class TupleLoop(Loop):
    def pass_on(self, block: nn.Module, x: Tensor) -> Tensor:
        return block(x, torch.ones(1, dtype=x.dtype))[0]


def looped(c: int = 8) -> nn.Module:
    return Loop([PreNormBlock(c, 12) for _ in range(3)], c)


def masked(c: int = 8) -> nn.Module:
    return MaskedLoop([MaskedBlock(c, 12) for _ in range(3)], c)


def tuples(c: int = 6) -> nn.Module:
    return TupleLoop([TupleBlock(c, 10) for _ in range(3)], c)


def mixer(c: int = 6) -> nn.Module:
    return TokenNet(c, *(MixerBlock(c, 8) for _ in range(3)))
