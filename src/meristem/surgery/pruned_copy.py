"""A plain copy of a live model with fewer of its units, for a look at what it would be; the model stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from meristem.errors import SurgeryError
from meristem.space.arrays import BoolArray
from meristem.space.nested_tensors import leave_shortcut
from meristem.surgery.live import Live
from meristem.surgery.model_tensors import ModelTensors
from meristem.surgery.module_tree import ModuleTree
from meristem.surgery.resize import take
from meristem.surgery.structure import move_blocks, write_sizes


@torch.no_grad()
def pruned_copy(live: Live, masks: Mapping[str, BoolArray]) -> nn.Module:
    """A copy in which only the units in ``masks`` are left, all of which are live; no hooks, no gradients."""
    if live.tree.absent:
        raise SurgeryError(
            f"networks are tried out as copies, which needs every block, but {live.tree.absent[0]} is absent: the "
            f"budget has no room for all blocks; raise it, or trace without depth"
        )
    before = live.masks
    assert all(not (masks[name] & ~mask).any() for name, mask in before.items()), "a copy has only units that are live"
    plain = copy.deepcopy(live.model)
    plain.zero_grad(set_to_none=True)
    tree = ModuleTree(plain)
    tensors = ModelTensors(plain, tree, live.space, full_size=False)
    for name in tensors.resizable:
        current = tensors.read(name)
        kept = [np.flatnonzero(axis.live(masks)[axis.live(before)]) for axis in live.space.axes(name)]
        values = tensors.formatted(name, take(current.detach(), kept))
        if values.shape != current.shape:
            is_parameter = isinstance(current, nn.Parameter)
            tensors.write(name, nn.Parameter(values, current.requires_grad) if is_parameter else values)
    move_blocks(tree, live.space, masks)
    write_sizes(tree, live.space, masks, {name for name in masks if (masks[name] != before[name]).any()})
    leave_shortcut(plain)
    return plain
