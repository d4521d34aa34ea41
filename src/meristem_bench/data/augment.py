"""Augmentation of a whole batch of images at once, with explicit randomness."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def shifted(images_NCHW: Tensor, pixels: int, generator: torch.Generator, fill: float = 0.0) -> Tensor:
    """Move each image by up to ``pixels`` in both directions: a random crop of the padded image."""
    count, _, height, width = images_NCHW.shape
    padded = F.pad(images_NCHW, (pixels,) * 4, value=fill)
    corner = torch.randint(0, 2 * pixels + 1, (2, count, 1), generator=generator)
    rows, columns = corner[0] + torch.arange(height), corner[1] + torch.arange(width)
    crops_NHWC = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return crops_NHWC.permute(0, 3, 1, 2).contiguous()


def flipped(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror about half of the images."""
    mirrored = torch.rand(len(images_NCHW), generator=generator) < 0.5
    return torch.where(mirrored[:, None, None, None], images_NCHW.flip(3), images_NCHW)
