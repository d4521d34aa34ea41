"""The store: a full-size copy on the host of every tensor that can be resized.

A copy starts as the model's initial tensor. Whatever leaves the live model is written back to its own place, so a
place holds the last value that lived there, or, if nothing ever did, the initial one. Growing and restoring are then
the same act: read the copy. Copies of optimizer state are made when first needed; NaN marks what never lived.

A block that has never lived takes no memory: of blocks that are built alike only one keeps its initial tensors. The
copy of another is made from those when it is grown, with its channels in another order: of the same distribution, and
still orthogonal, or zero, or one, if the model's own initialiser made it so. What is built otherwise in each part of a
layer, a forget gate say, stays in that part; an identity becomes some other permutation.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.surgery.resize import Positions, leaving, put, resized, take


class Store:
    """Keeps what is not live. ``parts`` tells where the parts of each dimension of a tensor start.

    Where a tensor is made like another, channels keep to their part.
    """

    def __init__(self, parts: Callable[[str], list[list[int]]]) -> None:
        self._parts = parts
        self._full_copies: dict[str, Tensor] = {}
        self._state_copies: dict[tuple[str, str], Tensor] = {}  # of optimizer state, by tensor and key
        self._initial: dict[str, Tensor] = {}  # of tensors that others are made like
        self._made_like: dict[str, str] = {}  # tensors that have never lived, and which ones they are made like

    def adopt(self, name: str, full: Tensor) -> None:
        """Keep a copy of a full-size tensor."""
        self._full_copies[name] = full.detach().to("cpu", copy=True)

    def adopt_like(self, name: str, other: str) -> None:
        """Keep nothing of a tensor that does not live: it is built like ``other``, which is adopted already."""
        self._made_like[name] = other
        if other not in self._initial:
            self._initial[other] = self._full_copies[other].clone()

    def full_copy(self, name: str) -> Tensor:
        """Return the full-size copy of a tensor; that of one that has never lived is made now."""
        if name in self._made_like:
            self._full_copies[name] = _rearranged(self._initial[self._made_like.pop(name)], name, self._parts(name))
        return self._full_copies[name]

    def exchange(self, name: str, current: Tensor, old: Positions, new: Positions) -> Tensor:
        """Write back what leaves the live tensor, and return the tensor at its new size."""
        if name in self._made_like and not all(len(positions) for positions in new):
            return current.new_empty([len(positions) for positions in new])  # it does not live: nothing of it is kept
        full = self.full_copy(name)
        self._write_back(full, current, old, new)
        return resized(current, full, old, new)

    def exchange_state(
        self,
        name: str,
        key: str,
        current: Tensor,
        old: Positions,
        new: Positions,
        fill: float | Tensor,
        averaged: int | None = None,
    ) -> Tensor:
        """Do the same for a tensor of optimizer state; places that never lived come out as ``fill``.

        NaN asks for the mean of what is stored: the tensor is empty now, so its own mean says nothing. ``averaged`` is
        the dimension of the parameter of which the state keeps a mean, a single position.
        """
        shape = list(self._full_copies[name if name in self._full_copies else self._made_like[name]].shape)
        if averaged is not None:
            shape[averaged] = 1
            old, new = [list(positions) for positions in (old, new)]
            old[averaged] = new[averaged] = np.zeros(1, dtype=np.int64)
        full = self._state_copies.get((name, key))
        if full is None:
            full = torch.full(shape, torch.nan, dtype=current.dtype)
            self._state_copies[name, key] = full
        if not isinstance(fill, Tensor) and math.isnan(fill):
            fill = float(full.nanmean().nan_to_num())
        self._write_back(full, current, old, new)
        return resized(current, full, old, new, fill)

    def forget_state(self) -> None:
        """Count nothing of the optimizer's state as having lived."""
        self._state_copies = {}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is stored, without copies."""
        return {
            "homes": self._full_copies,
            "moments": [(name, key, full) for (name, key), full in self._state_copies.items()],
            "initial": self._initial,
            "like": self._made_like,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Store what :meth:`state_dict` returned, as copies."""
        self._full_copies = {name: full.clone() for name, full in state["homes"].items()}
        self._state_copies = {(name, key): full.clone() for name, key, full in state["moments"]}
        self._initial = {name: values.clone() for name, values in state["initial"].items()}
        self._made_like = dict(state["like"])

    @staticmethod
    def _write_back(full: Tensor, current: Tensor, old: Positions, new: Positions) -> None:
        for gone in leaving(old, new):
            local = [np.searchsorted(was, positions) for was, positions in zip(old, gone, strict=True)]
            put(full, gone, take(current, local).to("cpu"))


def _rearranged(values: Tensor, name: str, parts: list[list[int]]) -> Tensor:
    """The same numbers with rows and columns in an order that depends on the name alone, part by part."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    for dim in range(min(2, values.dim())):
        ends = [*parts[dim][1:], values.shape[dim]]
        order = [start + random.permutation(end - start) for start, end in zip(parts[dim], ends, strict=True)]
        values = values.index_select(dim, torch.from_numpy(np.concatenate(order)))
    return values.clone()
