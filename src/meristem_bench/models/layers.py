"""What several networks share: convolutions with their norm, weight initialisation, checks of block counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn


def conv_bn(
    channels: int, out_channels: int, kernel: int, stride: int = 1, dilation: int = 1, groups: int = 1
) -> list[nn.Module]:
    """A convolution without bias that keeps the size at stride 1, and its batch norm."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(channels, out_channels, kernel, stride, padding, dilation, groups, bias=False)
    return [conv, nn.BatchNorm2d(out_channels)]


def kaiming_(
    network: nn.Module, *kinds: type[nn.Conv2d] | type[nn.Linear], mode: Literal["fan_in", "fan_out"] = "fan_in"
) -> None:
    """Draw the weights of all layers of these kinds as He et al. (2015) do; the rest keeps torch's initialisation."""
    for module in network.modules():
        if isinstance(module, kinds):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")


def checked_blocks(blocks: Sequence[int], stages: int) -> tuple[int, ...]:
    """The numbers of blocks as a tuple, if there is one for every stage and no stage is empty."""
    if len(blocks) != stages or min(blocks) < 1:
        raise ValueError(f"blocks must be {stages} numbers of at least 1, one for each stage, got {tuple(blocks)}")
    return tuple(blocks)
