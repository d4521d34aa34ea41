"""Values as functions of progress, which runs from 0 to 1 over the epochs of a run. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from meristem.control.text_settings import number
from meristem.errors import MeristemError


@dataclass(frozen=True)
class CostPath:
    """Points (progress, value) joined geometrically; flat before the first and after the last.

    >>> round(CostPath(((0.0, 0.01), (0.5, 1.0))).at(0.25), 9)
    0.1
    >>> CostPath(((0.0, 0.5), (0.5, 0.5))).mean(0.0, 1.0)
    0.5
    >>> round(CostPath(((0.0, 0.1), (1.0, 1.0))).mean(0.0, 0.5), 4)  # (sqrt(0.1) - 0.1) / log(sqrt(10))
    0.1878
    """

    points: tuple[tuple[float, float], ...]

    def at(self, progress: float) -> float:
        before = self.points[0]
        if progress <= before[0]:
            return before[1]
        for after in self.points[1:]:
            if progress <= after[0]:
                part = (progress - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 1.0
                return float(math.exp(math.log(before[1]) * (1 - part) + math.log(after[1]) * part))
            before = after
        return before[1]

    def mean(self, start: float, end: float) -> float:
        """The mean between two progresses."""
        (first, low), (last, high) = self.points[0], self.points[-1]
        whole = ((min(start, first), low), *self.points, (max(end, last), high))
        total = 0.0
        for (before, left), (after, right) in pairwise(whole):
            a, b = max(start, before), min(end, after)
            if a < b:
                piece = CostPath(((before, left), (after, right)))
                total += (b - a) * _log_mean(piece.at(a), piece.at(b))
        return total / (end - start)


@dataclass(frozen=True)
class Schedule:
    """How the cost of a growing network runs: up from the start, perhaps above the budget, down to it, then level.

    ``start`` and ``peak`` are multiples of the budget; 0 starts with the smallest network, infinity at the peak.
    ``grow_until`` is the progress at which the peak is reached; from ``hold_until`` to ``land_at`` the cost comes down
    to the budget. The default grows fast, because a unit that comes late has little time to learn, and stays at the
    budget: rising above it costs more and gains nothing in runs of some length (docs/log.md).

    >>> round(Schedule().path(0.0, 0.36).mean(0.0, 1.0), 3)
    0.335
    """

    start: float = number(0.25)
    grow_until: float = number(0.15)
    peak: float = number(1.0)
    hold_until: float = number(0.15)
    land_at: float = number(0.75)

    def __post_init__(self) -> None:
        for name in ("start", "peak"):
            if not getattr(self, name) >= 0:
                raise MeristemError(
                    f"the {name} of a schedule must be a number of at least 0, got {getattr(self, name)}"
                )
        for name in ("grow_until", "hold_until", "land_at"):
            if not 0 <= getattr(self, name) <= 1:
                raise MeristemError(f"{name} of a schedule must be a share of the run, got {getattr(self, name)}")

    def path(self, smallest: float, budget: float) -> CostPath:
        """The shares of the dense cost for a space whose smallest network costs ``smallest``."""
        peak = min(max(self.peak, 1.0) * budget, 1.0)
        start = min(max(self.start * budget, smallest), peak if self.start == math.inf else budget)
        return CostPath(
            _sorted(((0.0, start), (self.grow_until, peak), (self.hold_until, peak), (self.land_at, budget)))
        )


def _log_mean(start: float, end: float) -> float:
    """The mean of a geometric path between two values."""
    return start if math.isclose(start, end, rel_tol=1e-9) else (end - start) / math.log(end / start)


def _sorted(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The points with their progress never going back."""
    ordered: list[tuple[float, float]] = []
    for at, value in points:
        ordered.append((max(at, ordered[-1][0] if ordered else at), value))
    return tuple(ordered)
