"""The residual networks for 32x32 images of He et al. (2016), section 4.2: 6n + 2 layers, parameter-free shortcuts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem_bench.models.layers import checked_blocks, kaiming_


class Lift(nn.Module):
    """Adds the channels of one writer to a stream that keeps its width: channel by channel where none is missing.

    The matrix is a buffer: it is not trained, not decayed and counts as no parameter. Without one of its columns the
    writer lacks that channel and the stream does not, so that what a writer has depends on no other writer.
    """

    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.eye(channels)[:, :, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions. A shortcut that changes the shape subsamples and pads with zero channels.

    The padding is computed from the tensors, not from the constructor's numbers, so that it follows whatever width the
    block has at the moment. Without its shortcut the block is two plain layers. With ``own_masks`` a lift stands
    between the block's last norm and the stream.
    """

    def __init__(
        self, channels: int, out_channels: int, stride: int, shortcut: bool = True, own_masks: bool = False
    ) -> None:
        super().__init__()
        self.stride, self.shortcut = stride, shortcut
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.lift = Lift(out_channels) if own_masks else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.lift(self.bn2(self.conv2(y)))
        if not self.shortcut:
            return F.relu(y)
        if self.stride != 1:
            x = x[:, :, :: self.stride, :: self.stride]
        return F.relu(y + F.pad(x, (0, 0, 0, 0, 0, y.shape[1] - x.shape[1])))


class ResNetCifar(nn.Module):
    """ResNet-20, 32, 44, 56 or 110; any depth of the form 6n + 2.

    ``blocks`` gives the number of blocks of each of the three stages, instead of ``depth``. With ``own_masks`` every
    convolution that adds to the stream has channels of its own: a lift of each keeps the stream at its width, which
    must then be pinned (``*lift``).
    """

    def __init__(
        self,
        depth: int = 20,
        classes: int = 10,
        channels: int = 3,
        width: int = 16,
        blocks: Sequence[int] | None = None,
        shortcuts: bool = True,
        own_masks: bool = False,
    ) -> None:
        super().__init__()
        counts = _blocks_of(depth) if blocks is None else checked_blocks(blocks, 3)
        lift = [Lift(width)] if own_masks else []
        conv = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.stem = nn.Sequential(conv, nn.BatchNorm2d(width), *lift, nn.ReLU())
        stages, before = [], width
        for stage, count in enumerate(counts):
            after = width << stage
            layers = [BasicBlock(before, after, 2 if stage else 1, shortcuts, own_masks)]
            layers += [BasicBlock(after, after, 1, shortcuts, own_masks) for _ in range(count - 1)]
            stages.append(nn.Sequential(*layers))
            before = after
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(before, classes)
        kaiming_(self, nn.Conv2d, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def _blocks_of(depth: int) -> tuple[int, int, int]:
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth must be 6n + 2 (20, 32, 44, ...), got {depth}")
    return blocks, blocks, blocks


def resnet20(classes: int = 10) -> ResNetCifar:
    return ResNetCifar(20, classes)


def resnet20_own_masks(classes: int = 10) -> ResNetCifar:
    """ResNet-20 in which no two convolutions share channels, not even those that add to the same stream."""
    return ResNetCifar(20, classes, own_masks=True)


def resnet32(classes: int = 10) -> ResNetCifar:
    return ResNetCifar(32, classes)


def resnet44(classes: int = 10) -> ResNetCifar:
    return ResNetCifar(44, classes)


def resnet56(classes: int = 10) -> ResNetCifar:
    return ResNetCifar(56, classes)


def resnet110(classes: int = 10) -> ResNetCifar:
    return ResNetCifar(110, classes)
