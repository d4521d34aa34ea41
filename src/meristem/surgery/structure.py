"""What a change of the units means for the modules of a model: which blocks are in it, which sizes they remember."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from meristem.space.arrays import BoolArray
from meristem.space.remembered_sizes import write_size
from meristem.space.space import Space
from meristem.surgery.module_tree import ModuleTree


def move_blocks(tree: ModuleTree, space: Space, masks: Mapping[str, BoolArray]) -> None:
    """Put blocks in and take them out as the masks say."""
    absent = set(tree.absent)
    for group, block in space.blocks.items():
        live = bool(masks[group][0])
        if live and block.path in absent:
            tree.put_back(block.path)
        elif not live and block.path not in absent:
            tree.leave_out(block.path, block.way)


def write_sizes(tree: ModuleTree, space: Space, masks: Mapping[str, BoolArray], changed: Collection[str]) -> None:
    """Write the sizes that modules remember, where they follow one of the ``changed`` groups."""
    for attribute in space.attributes:
        if any(group in changed for group in attribute.axis.groups):
            size = int(attribute.axis.live(masks).sum())
            write_size(tree.module(attribute.module), attribute.name, attribute.index, size)
