"""VGG-16 of Simonyan and Zisserman (2015) with batch norm for 32x32 images: 13 convolutions, one linear classifier."""

from __future__ import annotations

from torch import Tensor, nn

from meristem_bench.models.layers import kaiming_

# Convolutions of each stage, and how many times the first stage's filters they have. Every stage ends with a max-pool.
_STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))


class VGGCifar(nn.Module):
    """``extra_layer`` puts a hidden linear layer, as wide as the last stage, before the classifier."""

    def __init__(self, classes: int = 10, extra_layer: bool = False, width: int = 64) -> None:
        super().__init__()
        stages, channels = [], 3
        for convs, times in _STAGES:
            layers: list[nn.Module] = []
            for _ in range(convs):
                conv = nn.Conv2d(channels, times * width, 3, 1, 1)
                channels = times * width
                layers += [conv, nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
            stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.stages = nn.Sequential(*stages)
        self.hidden = nn.Sequential(nn.Linear(channels, channels), nn.ReLU(inplace=True)) if extra_layer else None
        self.head = nn.Linear(channels, classes)
        kaiming_(self, nn.Conv2d, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        # At 32x32 the last stage leaves one pixel; the mean lets larger images pass too.
        x = self.stages(x).mean((2, 3))
        out: Tensor = self.head(x if self.hidden is None else self.hidden(x))
        return out


def vgg16(classes: int = 10) -> VGGCifar:
    return VGGCifar(classes)
