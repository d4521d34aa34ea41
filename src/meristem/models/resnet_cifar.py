"""The residual networks for 32x32 images of He et al. (2016), section 4.2: 6n + 2 layers, parameter-free shortcuts."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions. A shortcut that changes the shape subsamples and pads with zero channels.

    The padding is computed from the tensors, not from the constructor's numbers, so that it follows whatever width the
    block has at the moment.
    """

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.stride != 1:
            x = x[:, :, :: self.stride, :: self.stride]
        return F.relu(y + F.pad(x, (0, 0, 0, 0, 0, y.shape[1] - x.shape[1])))


class ResNetCifar(nn.Module):
    """ResNet-20, 32, 44, 56 or 110; any depth of the form 6n + 2."""

    def __init__(self, depth: int = 20, classes: int = 10, channels: int = 3, width: int = 16) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ValueError(f"depth must be 6n + 2 (20, 32, 44, ...), got {depth}")
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        stages, before = [], width
        for stage in range(3):
            after = width << stage
            strides = [2 if stage else 1] + [1] * (blocks - 1)
            layers = [BasicBlock(before if n == 0 else after, after, stride) for n, stride in enumerate(strides)]
            stages.append(nn.Sequential(*layers))
            before = after
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def resnet20(classes: int = 10) -> ResNetCifar:
    return ResNetCifar(20, classes)
