"""Blocks come in shut and open step by step (Eq. Opening): what a fresh block does at first is random.

A residual block could start as if it were not there by zeros in its last norm; a plain one cannot, whatever its weights
are. A gate that rises from 0 to 1 serves both, and is gone when it is open.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Opening:
    """The gates of fresh blocks. ``epochs`` is how long a block takes to open; 0: it is open at once."""

    def __init__(self, epochs: float) -> None:
        self._epochs = epochs
        self._ages: dict[str, float] = {}  # of the blocks that are not open yet, in epochs
        self._gates: dict[str, Tensor] = {}

    def begin(self, ages: Mapping[str, float], epoch: int, device: torch.device, share: float = 0.0) -> None:
        """An epoch starts, the first is 0, or is taken up when ``share`` of it has passed.

        ``ages`` are those of the live blocks; one that has lived in every epoch so far was there at the start.
        """
        self._ages = {group: age for group, age in ages.items() if age < min(self._epochs, epoch)}
        self._gates = {group: torch.zeros((), device=device) for group in self._ages}
        self.step(share)

    def step(self, share: float) -> None:
        """So much of the epoch has passed. In place: a compiled model then need not be compiled again."""
        for group, age in self._ages.items():
            self._gates[group].fill_(min(1.0, (age + share) / self._epochs))

    @property
    def done(self) -> bool:
        return not self._gates

    def value(self, group: str) -> Tensor | None:
        """The gate of a block, or None if it is open."""
        return self._gates.get(group)
