"""The store: a full-size home on the host for every tensor that can be resized.

A home starts as the model's initial tensor. Whatever leaves the live model is written back to its own place, so a
place holds the last value that lived there, or, if nothing ever did, the initial one. Growing and recalling are then
the same act: read the home. Homes of optimizer state are made when first needed; NaN marks what never lived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from meristem.surgery.resize import Positions, leaving, put, resized, take


class Store:
    def __init__(self) -> None:
        self._homes: dict[str, Tensor] = {}
        self._states: dict[tuple[str, str], Tensor] = {}

    def adopt(self, name: str, full: Tensor) -> None:
        """Keep a copy of a full-size tensor as the home of ``name``."""
        self._homes[name] = full.detach().to("cpu", copy=True)

    def home(self, name: str) -> Tensor:
        return self._homes[name]

    def exchange(self, name: str, current: Tensor, old: Positions, new: Positions) -> Tensor:
        """Park what leaves the live tensor and return it at its new size."""
        home = self._homes[name]
        self._park(home, current, old, new)
        return resized(current, home, old, new)

    def exchange_state(
        self, name: str, key: str, current: Tensor, old: Positions, new: Positions, fill: float
    ) -> Tensor:
        """The same for a tensor of optimizer state; places that never lived come out as ``fill``."""
        home = self._states.get((name, key))
        if home is None:
            home = self._states[name, key] = torch.full(self._homes[name].shape, torch.nan, dtype=current.dtype)
        self._park(home, current, old, new)
        return resized(current, home, old, new, fill)

    def state(self) -> tuple[dict[str, Tensor], list[tuple[str, str, Tensor]]]:
        return self._homes, [(name, key, home) for (name, key), home in self._states.items()]

    def load_state(self, homes: Mapping[str, Tensor], states: Iterable[tuple[str, str, Tensor]]) -> None:
        self._homes = {name: home.clone() for name, home in homes.items()}
        self._states = {(name, key): home.clone() for name, key, home in states}

    @staticmethod
    def _park(home: Tensor, current: Tensor, old: Positions, new: Positions) -> None:
        for gone in leaving(old, new):
            local = [np.searchsorted(was, found) for was, found in zip(old, gone, strict=True)]
            put(home, gone, take(current, local).to("cpu"))
