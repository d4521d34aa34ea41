"""The four starts of depth growing: networks of three or four stages, one block in each, with and without shortcuts.

The unit that grows is a whole block. The first block of a stage changes the shape and stays; all further blocks keep
the shape, so any number of them may come and go. In the plain networks a unit has the same layers as its residual
counterpart (two 3x3 convolutions; 1x1, 3x3, 1x1) and only lacks the shortcut.
"""

from __future__ import annotations

from collections.abc import Sequence

from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.models.resnet_imagenet import ResNetImageNet


def basic3_resnet(blocks: Sequence[int] = (1, 1, 1), classes: int = 10, width: int = 16) -> ResNetCifar:
    return ResNetCifar(classes=classes, width=width, blocks=blocks)


def plain3_net(blocks: Sequence[int] = (1, 1, 1), classes: int = 10, width: int = 16) -> ResNetCifar:
    return ResNetCifar(classes=classes, width=width, blocks=blocks, shortcuts=False)


def bottleneck4_resnet(blocks: Sequence[int] = (1, 1, 1, 1), classes: int = 1000, width: int = 64) -> ResNetImageNet:
    return ResNetImageNet(50, classes, width, blocks)


def plain4_net(blocks: Sequence[int] = (1, 1, 1, 1), classes: int = 1000, width: int = 64) -> ResNetImageNet:
    return ResNetImageNet(50, classes, width, blocks, shortcuts=False)
