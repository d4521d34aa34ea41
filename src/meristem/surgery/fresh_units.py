"""Apply the rule for fresh units to the values of one tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from meristem.space.arrays import BoolArray, IntArray
from meristem.space.space import Role, Space
from meristem.surgery.fresh import Fresh


def with_fresh_units(
    space: Space, rule: Fresh, name: str, values: Tensor, positions: Sequence[IntArray], grown: Mapping[str, BoolArray]
) -> Tensor:
    """Return ``values`` with ``rule`` applied along every dimension that has ``grown`` units.

    ``positions`` are the live positions of each dimension.
    """
    roles = {site.dim: site.roles for site in space.sites if site.tensor == name}
    gated = {slot.dim for slot in space.slots if slot.tensor == name}
    for dim, axis in enumerate(space.axes(name)):
        for part in axis.parts:
            units = part.units[positions[dim]]
            fresh = (units >= 0) & grown[part.group][units]
            if not fresh.any():
                continue
            old = (units >= 0) & ~fresh
            reads = Role.IN in roles[dim] and Role.OUT not in roles[dim]
            along = values.transpose(0, dim)
            if dim in gated and not reads:  # it stands for what reads them, but adds up no units: old ones stay
                changed = _apply_rule(rule, along, units, old, fresh, reads=True)
                kept = torch.from_numpy(np.flatnonzero(old)).to(values.device)
                changed[kept] = along[kept]
            else:
                changed = _apply_rule(rule, along, units, old, fresh, reads)
            values = changed.transpose(0, dim)
    return values


def _apply_rule(rule: Fresh, values: Tensor, units: IntArray, old: BoolArray, fresh: BoolArray, reads: bool) -> Tensor:
    """The rule along dimension 0, where a unit may own several positions."""
    values = values.clone()
    old_rows, old_values = _by_unit(values, units, old)
    fresh_rows, fresh_values = _by_unit(values, units, fresh)
    if not reads:
        fresh_values = rule.incoming(fresh_values)
    elif len(old_rows):
        old_values, fresh_values = rule.outgoing(old_values, fresh_values)
        values[old_rows] = old_values.flatten(0, 1)
    values[fresh_rows] = fresh_values.flatten(0, 1)
    return values


def _by_unit(values: Tensor, units: IntArray, chosen: BoolArray) -> tuple[Tensor, Tensor]:
    """The rows of the chosen units in the order of these, and their values: units, positions of each, the rest."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(units[rows], kind="stable")]
    index = torch.from_numpy(rows).to(values.device)
    if not len(rows):
        return index, values[index]
    return index, values[index].reshape(len(np.unique(units[rows])), -1, *values.shape[1:])
