"""The width penalty (the paper's Eq. 7): what the gate of every unit weighs in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Penalty(Protocol):
    """The factor of every unit's gate in the penalty, by group size."""

    def weight(self, units: Mapping[str, int]) -> dict[str, float]: ...


@dataclass(frozen=True)
class SumOverMeanWidth:
    """Sum of all gates divided by the mean group width: one constant for all units, so that layers grow alike."""

    def weight(self, units: Mapping[str, int]) -> dict[str, float]:
        return dict.fromkeys(units, len(units) / max(1, sum(units.values())))


@dataclass(frozen=True)
class MeanPerGroup:
    """The mean inside each group, summed over groups: narrow groups fill up first."""

    def weight(self, units: Mapping[str, int]) -> dict[str, float]:
        return {name: 1.0 / count for name, count in units.items()}


@dataclass(frozen=True)
class PlainSum:
    """The sum of all gates, as printed in the paper."""

    def weight(self, units: Mapping[str, int]) -> dict[str, float]:
        return dict.fromkeys(units, 1.0)


# The names by which a method's text chooses one.
PENALTIES: Mapping[str, Penalty] = {
    "sum": PlainSum(),
    "mean": MeanPerGroup(),
    "sum-over-mean-width": SumOverMeanWidth(),
}
