"""The wide residual networks of Zagoruyko and Komodakis (2016) for 32x32 images: 6n + 4 layers, pre-activation."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from meristem_bench.models.layers import kaiming_


class PreActivationBlock(nn.Module):
    """Norm, ReLU, 3x3 convolution, twice. Where the shape changes, the first ReLU goes into a 1x1 shortcut."""

    def __init__(self, channels: int, out_channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        same = stride == 1 and channels == out_channels
        self.shortcut = None if same else nn.Conv2d(channels, out_channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        y = F.relu(self.bn2(self.conv1(active)))
        y = self.conv2(self.dropout(y))
        out: Tensor = y + (x if self.shortcut is None else self.shortcut(active))
        return out


class WideResNet(nn.Module):
    """Three stages with 16, 32 and 64 times ``widen`` filters; ``dropout`` lies between the two convolutions."""

    def __init__(self, depth: int = 28, widen: int = 10, classes: int = 10, dropout: float = 0.0) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1:
            raise ValueError(f"depth must be 6n + 4 (16, 22, 28, ...), got {depth}")
        channels = 16
        self.stem = nn.Conv2d(3, channels, 3, 1, 1, bias=False)
        stages = []
        for stage in range(3):
            after = (16 << stage) * widen
            layers = [PreActivationBlock(channels, after, 2 if stage else 1, dropout)]
            layers += [PreActivationBlock(after, after, 1, dropout) for _ in range(blocks - 1)]
            stages.append(nn.Sequential(*layers))
            channels = after
        self.stages = nn.Sequential(*stages)
        self.bn = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)
        kaiming_(self, nn.Conv2d, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.stages(self.stem(x))))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def wrn28_10(classes: int = 10) -> WideResNet:
    return WideResNet(28, 10, classes)
