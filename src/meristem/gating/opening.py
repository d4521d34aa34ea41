"""Blocks come in shut and open step by step (Eq. Opening): what a fresh block does at first is random.

A residual block could start as if it were not there by zeros in its last norm; a plain one cannot, whatever its weights
are. A gate that rises from 0 to 1 serves both, and is gone when it is open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor


class Opening:
    """The gates of fresh blocks. ``epochs`` is how long a block takes to open; 0: it is open at once.

    The ``first`` blocks, those of the network that training begins with, are open.
    """

    def __init__(self, epochs: float, first: Collection[str] = ()) -> None:
        self._epochs, self._first = epochs, frozenset(first)
        self._ages: dict[str, float] = {}  # of the blocks that are not open yet, in epochs
        self._gates: dict[str, Tensor] = {}

    def begin(self, ages: Mapping[str, float], device: torch.device, share: float = 0.0) -> None:
        """An epoch starts, or is taken up when ``share`` of it has passed. ``ages`` are those of the live blocks."""
        young = {group: age for group, age in ages.items() if age < self._epochs}
        self._ages = {group: age for group, age in young.items() if group not in self._first}
        self._gates = {group: torch.zeros((), device=device) for group in self._ages}
        self.step(share)

    def step(self, share: float) -> None:
        """So much of the epoch has passed. In place: a compiled model then need not be compiled again."""
        for group, age in self._ages.items():
            self._gates[group].fill_(min(1.0, (age + share) / self._epochs))

    @property
    def done(self) -> bool:
        return not self._gates

    @property
    def shut(self) -> frozenset[str]:
        """The blocks that do not take part yet."""
        return frozenset(group for group, gate in self._gates.items() if not gate)

    def value(self, group: str) -> Tensor | None:
        """The gate of a block, or None if it is open."""
        return self._gates.get(group)
