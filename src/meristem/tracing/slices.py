"""Whether slices leave something out: where one takes all that there is, torch executes no operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def leaves_out(tensor: Tensor, index: Any) -> tuple[bool, ...]:
    """Whether each slice in an index leaves out a part of its dimension; those that never do (``:``) are not told of.

    >>> leaves_out(torch.empty(2, 3, 4), (slice(None), slice(0, 2), Ellipsis, slice(0, 9)))
    (True, False)
    """
    entries = [entry for entry in (index if isinstance(index, tuple) else (index,)) if entry is not None]
    takes = [0 if entry is Ellipsis else _dims_taken(entry) for entry in entries]
    found, at = [], 0
    for entry, taken in zip(entries, takes, strict=True):
        if isinstance(entry, slice) and entry != slice(None) and not _has_tensor(entry):
            found.append(len(range(*entry.indices(tensor.shape[at]))) < tensor.shape[at])
        at += tensor.dim() - sum(takes) if entry is Ellipsis else taken
    return tuple(found)


def _dims_taken(entry: Any) -> int:
    """How many dimensions an entry of an index stands for: a mask as many as it has."""
    mask = isinstance(entry, Tensor) and entry.dtype == torch.bool
    return entry.dim() if mask else int(not isinstance(entry, bool))


def _has_tensor(part: slice) -> bool:
    return any(isinstance(bound, Tensor) for bound in (part.start, part.stop, part.step))
