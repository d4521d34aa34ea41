"""The residual networks for ImageNet of He et al. (2016), 18 to 152 layers; the stride is in the 3x3 convolution."""

from __future__ import annotations

from torch import Tensor, nn

_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def _conv_bn(channels: int, out_channels: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(channels, out_channels, kernel, stride, kernel // 2, bias=False)
    return [conv, nn.BatchNorm2d(out_channels)]


class Block(nn.Module):
    """Basic (two 3x3) or bottleneck (1x1, 3x3, 1x1 with four times the channels)."""

    def __init__(self, channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        out_channels = 4 * width if bottleneck else width
        if bottleneck:
            layers = [*_conv_bn(channels, width, 1), nn.ReLU(inplace=True), *_conv_bn(width, width, 3, stride)]
            layers += [nn.ReLU(inplace=True), *_conv_bn(width, out_channels, 1)]
        else:
            layers = [*_conv_bn(channels, width, 3, stride), nn.ReLU(inplace=True), *_conv_bn(width, width, 3)]
        self.body = nn.Sequential(*layers)
        same = stride == 1 and channels == out_channels
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv_bn(channels, out_channels, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return out


class ResNetImageNet(nn.Module):
    def __init__(self, depth: int = 50, classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        if depth not in _BLOCKS:
            raise ValueError(f"depth must be one of {', '.join(map(str, _BLOCKS))}, got {depth}")
        self.stem = nn.Sequential(*_conv_bn(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        stages, channels, bottleneck = [], width, depth >= 50
        for stage, blocks in enumerate(_BLOCKS[depth]):
            layers = []
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                layers.append(Block(channels, width << stage, stride, bottleneck))
                channels = (width << stage) * (4 if bottleneck else 1)
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        out: Tensor = self.head(x.mean((2, 3)))
        return out
