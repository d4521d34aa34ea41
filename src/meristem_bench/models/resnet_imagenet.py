"""The residual networks for ImageNet of He et al. (2016), 18 to 152 layers; the stride is in the 3x3 convolution."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from meristem_bench.models.layers import checked_blocks, conv_bn, kaiming_

_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_STEM_STRIDE = 4


class ImageNetBlock(nn.Module):
    """A basic block (two 3x3) or a bottleneck (1x1, 3x3, 1x1 with four times the channels).

    Without its shortcut the block is a chain of plain layers.
    """

    def __init__(
        self,
        channels: int,
        width: int,
        stride: int,
        bottleneck: bool,
        dilation: int = 1,
        shortcut: bool = True,
    ) -> None:
        super().__init__()
        out_channels = 4 * width if bottleneck else width
        if bottleneck:
            layers = [*conv_bn(channels, width, 1), nn.ReLU(inplace=True), *conv_bn(width, width, 3, stride, dilation)]
            layers += [nn.ReLU(inplace=True), *conv_bn(width, out_channels, 1)]
        else:
            layers = [*conv_bn(channels, width, 3, stride, dilation), nn.ReLU(inplace=True)]
            layers += conv_bn(width, width, 3, 1, dilation)
        self.body = nn.Sequential(*layers)
        self.shortcut: nn.Module | None = None
        if shortcut:
            same = stride == 1 and channels == out_channels
            self.shortcut = nn.Identity() if same else nn.Sequential(*conv_bn(channels, out_channels, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        out: Tensor = self.relu(y if self.shortcut is None else y + self.shortcut(x))
        return out


class ResNetImageNet(nn.Module):
    """ResNet-18, 34 (basic blocks), 50, 101 or 152 (bottlenecks).

    ``blocks`` replaces the number of blocks of each of the four stages; ``depth`` then only says their kind.
    """

    def __init__(
        self,
        depth: int = 50,
        classes: int = 1000,
        width: int = 64,
        blocks: Sequence[int] | None = None,
        shortcuts: bool = True,
    ) -> None:
        super().__init__()
        self.stem = resnet_stem(width)
        self.stages, channels = resnet_stages(depth, width, blocks, shortcuts)
        self.head = nn.Linear(channels, classes)
        kaiming_(self, nn.Conv2d, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def resnet_stem(width: int) -> nn.Sequential:
    return nn.Sequential(*conv_bn(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))


def resnet_stages(
    depth: int,
    width: int,
    blocks: Sequence[int] | None = None,
    shortcuts: bool = True,
    output_stride: int = 32,
    multi_grid: Sequence[int] = (1,),
) -> tuple[nn.Sequential, int]:
    """The four stages, and the channels that leave them.

    A stage that would go beyond ``output_stride`` (8, 16 or 32) keeps the resolution and doubles the dilation instead.
    In the last stage the dilations of successive blocks are multiplied with ``multi_grid``. Weights have the same names
    and shapes whatever the stride is.
    """
    if depth not in _BLOCKS:
        raise ValueError(f"depth must be one of {', '.join(map(str, _BLOCKS))}, got {depth}")
    if output_stride not in (8, 16, 32):
        raise ValueError(f"output_stride must be 8, 16 or 32, got {output_stride}")
    counts = _BLOCKS[depth] if blocks is None else checked_blocks(blocks, len(_BLOCKS[depth]))
    stages, channels, bottleneck = [], width, depth >= 50
    total_stride, dilation = _STEM_STRIDE, 1
    for stage, count in enumerate(counts):
        first_stride = 2 if stage and total_stride < output_stride else 1
        dilation *= 2 if stage and first_stride == 1 else 1
        total_stride *= first_stride
        grid = multi_grid if stage == len(counts) - 1 else (1,)
        layers = []
        for n in range(count):
            spread = dilation * grid[n % len(grid)]
            stride = 1 if n else first_stride
            layers.append(ImageNetBlock(channels, width << stage, stride, bottleneck, spread, shortcuts))
            channels = (width << stage) * (4 if bottleneck else 1)
        stages.append(nn.Sequential(*layers))
    return nn.Sequential(*stages), channels


def resnet18(classes: int = 1000) -> ResNetImageNet:
    return ResNetImageNet(18, classes)


def resnet34(classes: int = 1000) -> ResNetImageNet:
    return ResNetImageNet(34, classes)


def resnet50(classes: int = 1000) -> ResNetImageNet:
    return ResNetImageNet(50, classes)


def resnet101(classes: int = 1000) -> ResNetImageNet:
    return ResNetImageNet(101, classes)
