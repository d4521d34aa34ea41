"""Convolutional parts of the zoo."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nets.common import Residual, conv_bn, mlp, seq


def basic_block(i: int, o: int, stride: int = 1) -> Residual:
    body = nn.Sequential(conv_bn(i, o, stride=stride), conv_bn(o, o, act=False))
    return Residual(body, None if i == o else conv_bn(i, o, 1, stride, act=False), nn.ReLU())


class PaddedShortcutBlock(nn.Module):
    """Option A of the ResNet paper: a subsampled identity, new channels padded with zeros at the end."""

    def __init__(self, i: int, o: int):
        super().__init__()
        self.conv1 = conv_bn(i, o, stride=2)
        self.conv2 = conv_bn(o, o, act=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.conv1(x))
        shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, out.shape[1] - x.shape[1]))
        return F.relu(out + shortcut)


class Lift(nn.Module):
    """A selection that is not trained: every channel to its place in a stream that keeps its width."""

    weight: Tensor

    def __init__(self, c: int):
        super().__init__()
        self.register_buffer("weight", torch.eye(c)[:, :, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight)


def own_masks_block(c: int, hidden: int) -> Residual:
    """What is added to the stream are channels of the block's own."""
    return Residual(seq(a=conv_bn(c, hidden), b=conv_bn(hidden, c, act=False), lift=Lift(c)), act=nn.ReLU())


def preact_block(c: int) -> Residual:
    half = [nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1, bias=False)]
    return Residual(nn.Sequential(*half, nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1)))


def bottleneck(i: int, mid: int, o: int, groups: int = 1) -> Residual:
    body = seq(a=conv_bn(i, mid, 1), b=conv_bn(mid, mid, groups=groups), c=conv_bn(mid, o, 1, act=False))
    return Residual(body, None if i == o else conv_bn(i, o, 1, act=False), nn.ReLU())


def inverted_residual(c: int, hidden: int) -> Residual:
    depthwise = conv_bn(hidden, hidden, groups=hidden)
    return Residual(seq(expand=conv_bn(c, hidden, 1), dw=depthwise, project=conv_bn(hidden, c, 1, act=False)))


class SqueezeExcite(nn.Module):
    def __init__(self, c: int, hidden: int):
        super().__init__()
        self.squeeze = nn.Conv2d(c, hidden, 1)
        self.excite = nn.Conv2d(hidden, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.excite(F.relu(self.squeeze(s))))


class ChannelShuffle(nn.Module):
    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        return x.view(b, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)


def shuffle_unit(c: int, hidden: int, groups: int) -> Residual:
    return Residual(
        seq(
            reduce=conv_bn(c, hidden, 1, groups=groups),
            shuffle=ChannelShuffle(groups),
            dw=conv_bn(hidden, hidden, groups=hidden, act=False),
            expand=conv_bn(hidden, c, 1, groups=groups, act=False),
        ),
        act=nn.ReLU(),
    )


class SplitUnit(nn.Module):
    """Half of the channels is processed, the other half passes."""

    def __init__(self, c: int, mid: int):
        super().__init__()
        self.branch = seq(a=conv_bn(c // 2, mid, 1), b=conv_bn(mid, c // 2))

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        return torch.cat([left, self.branch(right)], 1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = conv_bn(3, 6)
        self.mid = conv_bn(6, 8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.fuse = conv_bn(6 + 4, 6)
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        up = self.up(self.mid(F.max_pool2d(skip, 2)))
        return self.head(self.fuse(torch.cat([skip, up], 1)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, c: int, hidden: int):
        super().__init__()
        self.dw = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.norm = nn.LayerNorm(c)
        self.mlp = mlp(c, hidden, c)
        self.gamma = nn.Parameter(torch.rand(c))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.mlp(y)).permute(0, 3, 1, 2)


class Resampling(nn.Module):
    """Reflection padding, average pooling and interpolation around a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv1 = nn.Conv2d(3, 6, 3)
        self.conv2 = nn.Conv2d(6, 6, 3)
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = F.leaky_relu(self.conv1(self.pad(x)), 0.1)
        coarse = F.silu(self.conv2(self.pad(F.avg_pool2d(fine, 2))))
        return self.head(fine + F.interpolate(coarse, scale_factor=2.0, mode="bilinear"))


class WeightNormedConv(nn.Module):
    """Weight normalisation written in the forward: the parameter is never used as it is stored."""

    def __init__(self, i: int, o: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i, 3, 3))
        self.gain = nn.Parameter(torch.rand(o, 1, 1, 1) + 0.5)
        self.bias = nn.Parameter(torch.randn(o))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.gain * self.weight / self.weight.norm(2, dim=(1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, padding=1)


class MultiOutput(nn.Module):
    """A dict with a tuple inside; three heads at two depths."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(3, 8)
        self.body = conv_bn(8, 6)
        self.classes = nn.Linear(6, 5)
        self.boxes = nn.Conv2d(6, 4, 1)
        self.aux = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> dict[str, Tensor | tuple[Tensor, Tensor]]:
        stem = self.stem(x)
        body = self.body(stem)
        return {
            "classes": (self.classes(body.mean((2, 3))), self.aux(stem.amax((2, 3)))),
            "boxes": self.boxes(body),
        }


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = seq(a=conv_bn(3, 6), b=conv_bn(6, 8, stride=2), pool=nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head((self.trunk(x) - self.trunk(y)).abs().flatten(1))


class ChannelCumsum(nn.Module):
    """Channels are ordered: no unit can go without changing what the others mean."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(3, 6)
        self.body = conv_bn(6, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x)).mean((2, 3))
        return self.head(x.cumsum(1))
