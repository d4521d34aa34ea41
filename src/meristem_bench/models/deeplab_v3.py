"""DeepLab-v3 of Chen et al. (2017): a dilated ResNet, convolutions of several rates side by side, a class per pixel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem_bench.models.layers import conv_bn, kaiming_
from meristem_bench.models.resnet_imagenet import resnet_stages, resnet_stem

_MULTI_GRID = (1, 2, 4)
_RATES = {16: (6, 12, 18), 8: (12, 24, 36)}  # of the parallel 3x3 convolutions, for each output stride


class SpatialPyramid(nn.Module):
    """A 1x1 convolution, 3x3 convolutions of several rates and the mean of the image, side by side, then mixed by 1x1.

    The norm of the mean sees one value per image: training needs at least two images per batch.
    """

    def __init__(self, channels: int, out_channels: int, rates: Sequence[int]) -> None:
        super().__init__()
        branches = [_layer(channels, out_channels, 1)] + [_layer(channels, out_channels, 3, rate) for rate in rates]
        self.branches = nn.ModuleList(branches)
        self.image = _layer(channels, out_channels, 1)
        self.mix = _layer(out_channels * (len(branches) + 1), out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        image = self.image(x.mean((2, 3), keepdim=True)).expand(-1, -1, *x.shape[2:])
        out: Tensor = self.mix(torch.cat([*(branch(x) for branch in self.branches), image], 1))
        return out


class DeepLabV3(nn.Module):
    """Logits of every class for every pixel of the input.

    Stem and stages have the names and shapes of ``ResNetImageNet`` of the same depth and width, whose trained weights
    can be loaded with ``strict=False``.
    """

    def __init__(
        self, classes: int = 21, depth: int = 101, output_stride: int = 16, width: int = 64, pyramid_width: int = 256
    ) -> None:
        super().__init__()
        if output_stride not in _RATES:
            raise ValueError(f"output_stride must be 8 or 16, got {output_stride}")
        self.stem = resnet_stem(width)
        self.stages, channels = resnet_stages(depth, width, output_stride=output_stride, multi_grid=_MULTI_GRID)
        self.pyramid = SpatialPyramid(channels, pyramid_width, _RATES[output_stride])
        kaiming_(self, nn.Conv2d, mode="fan_out")
        # Created after the initialisation: fan_out of few classes would mean large weights and confident first guesses.
        self.head = nn.Conv2d(pyramid_width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(self.pyramid(self.stages(self.stem(x))))
        return F.interpolate(logits, x.shape[2:], mode="bilinear", align_corners=False)


def _layer(channels: int, out_channels: int, kernel: int, dilation: int = 1) -> nn.Sequential:
    return nn.Sequential(*conv_bn(channels, out_channels, kernel, dilation=dilation), nn.ReLU(inplace=True))


def deeplab_v3_resnet101(classes: int = 21) -> DeepLabV3:
    return DeepLabV3(classes)
