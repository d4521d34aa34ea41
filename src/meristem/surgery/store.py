"""The store: a full-size home on the host for every tensor that can be resized.

A home starts as the model's initial tensor. Whatever leaves the live model is written back to its own place, so a
place holds the last value that lived there, or, if nothing ever did, the initial one. Growing and recalling are then
the same act: read the home. Homes of optimizer state are made when first needed; NaN marks what never lived.

A block that has never lived takes no memory: of blocks that are built alike only one keeps its initial tensors. The
home of another is made from those when it is grown, with its channels in another order: of the same distribution, and
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
    """``parts`` tells where the parts of each dimension of a tensor start; between them channels stay apart."""

    def __init__(self, parts: Callable[[str], list[list[int]]]) -> None:
        self._parts = parts
        self._homes: dict[str, Tensor] = {}
        self._states: dict[tuple[str, str], Tensor] = {}
        self._initial: dict[str, Tensor] = {}  # of tensors that others are made like
        self._like: dict[str, str] = {}  # tensors that have never lived, and what they are made like

    def adopt(self, name: str, full: Tensor) -> None:
        """Keep a copy of a full-size tensor as the home of ``name``."""
        self._homes[name] = full.detach().to("cpu", copy=True)

    def adopt_like(self, name: str, other: str) -> None:
        """Keep nothing of a tensor that does not live: it is built like ``other``, which is adopted already."""
        self._like[name] = other
        if other not in self._initial:
            self._initial[other] = self._homes[other].clone()

    def home(self, name: str) -> Tensor:
        if name in self._like:
            self._homes[name] = _rearranged(self._initial[self._like.pop(name)], name, self._parts(name))
        return self._homes[name]

    def exchange(self, name: str, current: Tensor, old: Positions, new: Positions) -> Tensor:
        """Park what leaves the live tensor and return it at its new size."""
        if name in self._like and not all(len(found) for found in new):
            return current.new_empty([len(found) for found in new])  # it does not live, and nothing of it is kept
        home = self.home(name)
        self._park(home, current, old, new)
        return resized(current, home, old, new)

    def exchange_state(
        self, name: str, key: str, current: Tensor, old: Positions, new: Positions, fill: float
    ) -> Tensor:
        """The same for a tensor of optimizer state; places that never lived come out as ``fill``.

        NaN asks for the mean of what is known: the tensor is empty now, so nobody could say.
        """
        home = self._states.get((name, key))
        if home is None:
            home = self._states[name, key] = torch.full(self.home(name).shape, torch.nan, dtype=current.dtype)
        if math.isnan(fill):
            fill = float(home.nanmean().nan_to_num())
        self._park(home, current, old, new)
        return resized(current, home, old, new, fill)

    def state(self) -> dict[str, Any]:
        return {
            "homes": self._homes,
            "moments": [(name, key, home) for (name, key), home in self._states.items()],
            "initial": self._initial,
            "like": self._like,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._homes = {name: home.clone() for name, home in state["homes"].items()}
        self._states = {(name, key): home.clone() for name, key, home in state["moments"]}
        self._initial = {name: values.clone() for name, values in state["initial"].items()}
        self._like = dict(state["like"])

    @staticmethod
    def _park(home: Tensor, current: Tensor, old: Positions, new: Positions) -> None:
        for gone in leaving(old, new):
            local = [np.searchsorted(was, found) for was, found in zip(old, gone, strict=True)]
            put(home, gone, take(current, local).to("cpu"))


def _rearranged(values: Tensor, name: str, parts: list[list[int]]) -> Tensor:
    """The same numbers with rows and columns in an order that depends on the name alone, part by part."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    for dim in range(min(2, values.dim())):
        ends = [*parts[dim][1:], values.shape[dim]]
        order = [start + random.permutation(end - start) for start, end in zip(parts[dim], ends, strict=True)]
        values = values.index_select(dim, torch.from_numpy(np.concatenate(order)))
    return values.clone()
