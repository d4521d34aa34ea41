"""The rule for fresh units, applied to the values of one tensor that has some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from meristem.space.arrays import BoolArray, IntArray
from meristem.space.space import Role, Space
from meristem.surgery.fresh import Fresh


def with_fresh(
    space: Space, rule: Fresh, name: str, values: Tensor, positions: Sequence[IntArray], grown: Mapping[str, BoolArray]
) -> Tensor:
    """Apply ``rule`` along every dimension with units that are ``grown``; ``positions`` are the live ones of each."""
    roles = {site.dim: site.roles for site in space.sites if site.tensor == name}
    for dim, axis in enumerate(space.axes(name)):
        for part in axis.parts:
            units = part.units[positions[dim]]
            fresh = (units >= 0) & grown[part.group][units]
            if not fresh.any():
                continue
            old = (units >= 0) & ~fresh
            reads = Role.IN in roles[dim] and Role.OUT not in roles[dim]
            values = _filled(rule, values.transpose(0, dim), units, old, fresh, reads).transpose(0, dim)
    return values


def _filled(rule: Fresh, values: Tensor, units: IntArray, old: BoolArray, fresh: BoolArray, reads: bool) -> Tensor:
    """The rule along dimension 0, where a unit may own several positions."""
    values = values.clone()
    blocks, places = [], []
    for chosen in (old, fresh):
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(units[rows], kind="stable")]
        index = torch.from_numpy(rows).to(values.device)
        places.append(index)
        blocks.append(
            values[index].reshape(len(np.unique(units[rows])), -1, *values.shape[1:]) if len(rows) else values[index]
        )
    if reads and len(places[0]):
        kept, made = rule.read(*blocks)
        values[places[0]] = kept.flatten(0, 1)
    elif reads:
        made = blocks[1]
    else:
        made = rule.made(blocks[1])
    values[places[1]] = made.flatten(0, 1)
    return values
