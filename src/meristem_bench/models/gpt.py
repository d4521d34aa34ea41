"""A small GPT (Radford et al. 2019) on bytes: learned positions, pre-norm blocks, an output matrix of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem_bench.models.transformer import TransformerBlock, init_transformer_

BYTES = 256


class GPT(nn.Module):
    """Scores for the next token at every place of ``tokens`` [B, T], of at most ``context`` tokens."""

    def __init__(
        self, classes: int = BYTES, context: int = 256, channels: int = 192, heads: int = 12, blocks: int = 6
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(classes, channels)
        self.positions = nn.Embedding(context, channels)
        self.blocks = nn.Sequential(*(TransformerBlock(channels, heads, causal=True) for _ in range(blocks)))
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, classes, bias=False)
        init_transformer_(self, blocks)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        out: Tensor = self.head(self.norm(self.blocks(x)))
        return out


def gpt_small(classes: int = BYTES, context: int = 256) -> GPT:
    """2.8 million parameters: 6 blocks of 12 heads and 192 channels."""
    return GPT(classes, context)


def gpt_tiny(classes: int = BYTES, context: int = 128) -> GPT:
    """0.7 million parameters: 6 blocks of 6 heads and 96 channels."""
    return GPT(classes, context, channels=96, heads=6)
