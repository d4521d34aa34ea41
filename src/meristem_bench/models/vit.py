"""A small ViT (Dosovitskiy et al. 2021) for small images, with the mean over the patches in place of a class token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem_bench.models.transformer import TransformerBlock, init_transformer_

_POSITION_STD = 0.02


class ViT(nn.Module):
    """Scores of images [B, 3, size, size], which are cut into patches of ``patch`` pixels; positions are learned."""

    def __init__(
        self, classes: int = 10, size: int = 32, patch: int = 4, channels: int = 144, heads: int = 9, blocks: int = 6
    ) -> None:
        super().__init__()
        if size % patch:
            raise ValueError(f"images of {size} pixels cannot be cut into patches of {patch}")
        self.size = size
        self.patches = nn.Conv2d(3, channels, patch, patch)
        self.positions = nn.Parameter(_POSITION_STD * torch.randn(1, (size // patch) ** 2, channels))
        self.blocks = nn.Sequential(*(TransformerBlock(channels, heads, causal=False) for _ in range(blocks)))
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, classes)
        init_transformer_(self, blocks)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[2:] != (self.size, self.size):
            sizes = "x".join(map(str, images.shape[2:]))
            raise ValueError(f"this ViT has positions for images of {self.size}x{self.size} pixels, got {sizes}")
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        out: Tensor = self.head(self.norm(self.blocks(x)).mean(1))
        return out


def vit_small(classes: int = 10) -> ViT:
    """1.5 million parameters: 6 blocks of 9 heads and 144 channels, 64 patches of images of 32 pixels."""
    return ViT(classes)


def vit_tiny(classes: int = 10) -> ViT:
    """0.7 million parameters: 6 blocks of 6 heads and 96 channels, 16 patches of images of 16 pixels."""
    return ViT(classes, size=16, channels=96, heads=6)
