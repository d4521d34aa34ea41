"""MobileNet of Howard et al. (2017): depthwise 3x3 and pointwise 1x1 convolutions in turn, for images of any size."""

from __future__ import annotations

from torch import Tensor, nn

from meristem_bench.models.layers import conv_bn, kaiming_

# Filters of the pointwise convolution and stride of the depthwise one, from the first block to the last.
_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1)),
)


class MobileNetV1(nn.Module):
    """Thirteen separable blocks; every width is multiplied with ``width_multiplier``."""

    def __init__(self, width_multiplier: float = 1.0, classes: int = 1000) -> None:
        super().__init__()
        if width_multiplier <= 0:
            raise ValueError(f"width_multiplier must be above 0, got {width_multiplier}")
        channels = _scaled(32, width_multiplier)
        self.stem = nn.Sequential(*conv_bn(3, channels, 3, 2), nn.ReLU(inplace=True))
        blocks = []
        for width, stride in _BLOCKS:
            after = _scaled(width, width_multiplier)
            blocks.append(_separable(channels, after, stride))
            channels = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)
        # A depthwise filter reads one channel: fan_out would count all of them and make its weights vanish.
        kaiming_(self, nn.Conv2d, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def _scaled(width: int, multiplier: float) -> int:
    return max(1, round(width * multiplier))


def _separable(channels: int, out_channels: int, stride: int) -> nn.Sequential:
    depthwise = [*conv_bn(channels, channels, 3, stride, groups=channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*depthwise, *conv_bn(channels, out_channels, 1), nn.ReLU(inplace=True))


def mobilenet_v1(classes: int = 1000) -> MobileNetV1:
    return MobileNetV1(1.0, classes)


def mobilenet_v1_half(classes: int = 1000) -> MobileNetV1:
    return MobileNetV1(0.5, classes)
