"""Widths that are learned: tests on held-out data say which groups should be wider."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meristem.control.text_settings import number, whole_number
from meristem.errors import MeristemError

_LEAST_RISE = 1e-3  # of the largest rise: a group that nobody minds is made narrower, but not to nothing at once


@dataclass(frozen=True)
class NoiseTest:
    """Groups whose units the held-out loss minds most become wider (Network Adjustment, Chen et al., CVPR 2020).

    All groups are disturbed by an equal slice of the budget (Eq. Noise): noise stands for dropping the ``slice_share``
    of a typical group's cost, so that a cheap group gets more of it than a dear one. The width of a group is then
    multiplied with (rise / geometric mean of the rises) ** ``rate``, by at most ``largest_step`` either way, and all
    together are brought back to the plan. There are ``tests`` of them, evenly up to the progress ``until``, each with
    ``draws`` of the noise for every group.
    """

    tests: int = whole_number(4)
    until: float = number(0.4)
    slice_share: float = number(0.1)
    rate: float = number(0.5)
    largest_step: float = number(1.5)
    draws: int = whole_number(2)

    def __post_init__(self) -> None:
        if self.tests < 1 or self.draws < 1:
            raise MeristemError(f"tests and draws must be at least 1, got {self.tests} and {self.draws}")
        if not (0 < self.until <= 1 and 0 < self.slice_share < 1):
            raise MeristemError(f"until and slice_share must be shares, got {self.until} and {self.slice_share}")
        if not (self.rate > 0 and self.largest_step > 1):
            raise MeristemError(
                f"rate must be above 0 and largest_step above 1, got {self.rate} and {self.largest_step}"
            )

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether there is a test after ``epoch`` finished epochs.

        >>> [epoch for epoch in range(1, 11) if NoiseTest(tests=2).due(epoch, 10)]
        [2, 4]
        """
        return epoch in {max(1, round(self.until * epochs * k / self.tests)) for k in range(1, self.tests + 1)}

    def pending(self, epoch: int, epochs: int) -> bool:
        """Whether a test follows at the end of the epoch after ``epoch`` finished ones, or later."""
        return epoch < max(1, round(self.until * epochs))

    def spreads(self, widths: Mapping[str, int], unit_prices: Mapping[str, float]) -> dict[str, float]:
        """The standard deviation of the noise on each group (Eq. Noise).

        >>> test = NoiseTest(slice_share=0.1)
        >>> {name: round(spread, 3) for name, spread in test.spreads({"a": 10, "b": 30}, {"a": 1, "b": 1}).items()}
        {'a': 0.5, 'b': 0.267}
        """
        costs = {group: width * unit_prices[group] for group, width in widths.items()}
        mean = float(np.mean(list(costs.values())))
        dropped = {group: min(0.5, self.slice_share * mean / max(cost, 1e-12)) for group, cost in costs.items()}
        return {group: math.sqrt(share / (1 - share)) for group, share in dropped.items()}

    def wider(self, widths: Mapping[str, int], rises: Mapping[str, float]) -> dict[str, float]:
        """The widths that the rises of the loss ask for, before they are brought to the plan.

        >>> wider = NoiseTest().wider({"a": 10, "b": 10}, {"a": 0.4, "b": 0.1})
        >>> round(wider["a"], 3), round(wider["b"], 3)
        (14.142, 7.071)
        """
        least = _LEAST_RISE * max(*rises.values(), 1e-12)
        logs = {group: math.log(max(rise, least)) for group, rise in rises.items()}
        mean, most = float(np.mean(list(logs.values()))), math.log(self.largest_step)
        return {
            group: widths[group] * math.exp(min(most, max(-most, self.rate * (log - mean))))
            for group, log in logs.items()
        }
