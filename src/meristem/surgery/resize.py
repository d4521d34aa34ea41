"""Take and put sub-grids of tensors. The only code that moves numbers between a small tensor and its full-size copy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from meristem.space.arrays import IntArray

Positions = Sequence[IntArray]  # for every dimension, the positions of the full-size tensor, in order


def take(source: Tensor, positions: Positions) -> Tensor:
    """Return the sub-grid of ``source`` at ``positions``."""
    taken = source
    order = sorted(range(source.dim()), key=lambda dim: len(positions[dim]) - source.shape[dim])
    for dim in order:
        if len(positions[dim]) != taken.shape[dim]:
            taken = taken.index_select(dim, torch.from_numpy(positions[dim]).to(taken.device))
    return taken


def put(target: Tensor, positions: Positions, values: Tensor) -> None:
    """Write ``values`` into the sub-grid of ``target`` at ``positions``, in place."""
    partial = [dim for dim in range(target.dim()) if len(positions[dim]) != target.shape[dim]]
    if not partial:
        target.copy_(values)
    elif len(partial) == 1:
        dim = partial[0]
        index = torch.from_numpy(positions[dim]).to(target.device)
        target.index_copy_(dim, index, values.to(target.device, target.dtype))
    else:
        grid = tuple(
            torch.from_numpy(along).to(target.device).view([-1 if at == dim else 1 for at in range(target.dim())])
            for dim, along in enumerate(positions)
        )
        target[grid] = values.to(target.device, target.dtype)


def leaving(old: Positions, new: Positions) -> list[list[IntArray]]:
    """Return sub-grids (as positions) that together cover what is in ``old`` and not in ``new``."""
    return [
        [gone if at == dim else old[at] for at in range(len(old))]
        for dim in range(len(old))
        if len(gone := np.setdiff1d(old[dim], new[dim], assume_unique=True))
    ]


def resized(
    current: Tensor, full: Tensor, old: Positions, new: Positions, fill: float | Tensor | None = None
) -> Tensor:
    """Return the tensor at ``new``: what stays from ``current`` (which is at ``old``), what comes in from ``full``.

    With ``fill``, one number or a tensor at ``new``, NaN in ``full`` means that nothing ever lived there. What stays is
    never touched.
    """
    stay = [np.isin(was, now, assume_unique=True) for was, now in zip(old, new, strict=True)]
    kept = take(current, [np.flatnonzero(flags) for flags in stay])
    if list(kept.shape) == [len(now) for now in new]:
        return kept.clone() if kept is current else kept
    whole = take(full, new)
    whole = whole.clone() if whole is full else whole
    if isinstance(fill, Tensor):
        whole = torch.where(whole.isnan(), fill.to(whole.device, whole.dtype), whole)
    elif fill is not None:
        whole = torch.nan_to_num(whole, nan=fill)
    whole = whole.to(current.device, current.dtype)
    where = [np.searchsorted(now, was[flags]) for was, now, flags in zip(old, new, stay, strict=True)]
    put(whole, where, kept)
    return whole
