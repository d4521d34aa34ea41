"""Activation volume: how many numbers the layers of a network put out, a cost of its own that no weight shows."""

from __future__ import annotations

import math

import numpy as np

from meristem.space.space import Role, Space


def unit_volumes(space: Space) -> dict[str, float]:
    """For every group the share of all outputs of convolutions and linear layers that one unit of it stands for.

    A layer's outputs are its multiply-adds over what one of them needs. The shares of all units add up to one, less
    what belongs to nobody. Where several groups own an output, each has it as if the others were full.
    """
    volumes = dict.fromkeys(space.groups, 0.0)
    total = 0.0
    makers = {
        site.tensor: site.dim
        for site in space.sites
        if site.roles & {Role.OUT, Role.ALONG} and Role.IN not in site.roles
    }
    for term in space.terms:
        weight = f"{term.module}.weight"
        if weight not in space.tensors or len(space.tensors[weight].shape) < 2:
            continue
        shape, dim = space.tensors[weight].shape, makers.get(weight, 0)
        macs = float(term.factor) * math.prod(axis.size for axis in term.axes)
        outputs = macs * shape[dim] / math.prod(shape)
        total += outputs
        for part in space.unit_parts(space.axes(weight)[dim]):
            owned = int((part.units >= 0).sum())
            volumes[part.group] += outputs * owned / shape[dim] / len(np.unique(part.units[part.units >= 0]))
    return {name: volume / total if total else 0.0 for name, volume in volumes.items()}
