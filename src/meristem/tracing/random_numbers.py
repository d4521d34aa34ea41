"""Random numbers in a run: the same in every run, and those that are drawn from a seed of the model's own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class RandomNumbers:
    """Starts every operation that draws from a seed of its own, so that widths do not shift what is drawn after it."""

    def __init__(self) -> None:
        self._seed = 0

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """One run of the model with the same random numbers as every other; the random state is restored."""
        before = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
        self._restart()
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.random.set_rng_state(before[2])

    def come_from_a_seed(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether an operation about to draw numbers draws what the model's code has seeded: numbers by position."""
        if kwargs.get("generator") is not None or torch.default_generator.initial_seed() != self._seed:
            return True
        self._restart()
        return False

    def _restart(self) -> None:
        self._seed += 1
        torch.default_generator.manual_seed(self._seed)
