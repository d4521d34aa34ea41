"""The names that torchvision's ResNets give their tensors, as ours: weights trained there fit the networks here."""

from __future__ import annotations

import re

_OUTSIDE_BLOCKS = {"conv1": "stem.0", "bn1": "stem.1", "fc": "head"}
_IN_A_BLOCK = {
    **{"conv1": "body.0", "bn1": "body.1", "conv2": "body.3", "bn2": "body.4", "conv3": "body.6", "bn3": "body.7"},
    "downsample": "shortcut",
}
_BLOCK = re.compile(r"layer([1-4])\.(\d+)\.(\w+)\.(.+)")


def from_torchvision(name: str) -> str:
    """The name of the same tensor in ``ResNetImageNet`` and ``DeepLabV3``; another network's stays as it is.

    >>> from_torchvision("layer1.0.conv3.weight"), from_torchvision("bn1.bias")
    ('stages.0.0.body.6.weight', 'stem.1.bias')
    """
    if block := _BLOCK.fullmatch(name):
        stage, number, layer, rest = block.groups()
        return f"stages.{int(stage) - 1}.{number}.{_IN_A_BLOCK[layer]}.{rest}" if layer in _IN_A_BLOCK else name
    layer, _, rest = name.partition(".")
    return f"{_OUTSIDE_BLOCKS[layer]}.{rest}" if layer in _OUTSIDE_BLOCKS else name
