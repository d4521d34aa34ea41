"""Values as functions of progress, which runs from 0 to 1 over the epochs of a run. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from meristem.control.text_settings import number, stairs
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

    def rises_until(self) -> Iterator[float]:
        """The ends of the pieces on which the value rises."""
        return (end for (_, low), (end, high) in pairwise(self.points) if high > low)

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

    With ``stairs`` the cost instead jumps to a share of the budget at each of the given moments, and the other numbers
    have no meaning: few changes of the network, each of which a learning rate that is still high can make up for.

    >>> round(Schedule().path(0.0, 0.36).mean(0.0, 1.0), 3)
    0.335
    >>> round(Schedule(stairs=((0.0, 0.2), (0.5, 1.0))).path(0.0, 0.4).mean(0.0, 1.0), 3)
    0.24
    """

    start: float = number(0.25)
    grow_until: float = number(0.15)
    peak: float = number(1.0)
    hold_until: float = number(0.15)
    land_at: float = number(0.75)
    stairs: tuple[tuple[float, float], ...] = stairs()

    def __post_init__(self) -> None:
        for name in ("start", "peak"):
            if not getattr(self, name) >= 0:
                raise MeristemError(
                    f"the {name} of a schedule must be a number of at least 0, got {getattr(self, name)}"
                )
        for name in ("grow_until", "hold_until", "land_at"):
            if not 0 <= getattr(self, name) <= 1:
                raise MeristemError(f"{name} of a schedule must be a share of the run, got {getattr(self, name)}")
        _check_stairs(self.stairs)

    def before(self, freeze: float) -> Schedule:
        """The same with everything that happens after the freeze happening at it."""
        moments = {name: min(getattr(self, name), freeze) for name in ("grow_until", "hold_until", "land_at")}
        return replace(self, **moments, stairs=tuple((min(moment, freeze), height) for moment, height in self.stairs))

    def slower(self, latest: float, steps: int = 50) -> list[Schedule]:
        """The schedule itself, then with less and less of a peak, then growing later and later, up to ``latest``.

        Each costs at most what the one before costs.
        """
        parts = [n / steps for n in range(steps + 1)]
        if self.stairs:
            first, *others = self.stairs
            return [
                replace(
                    self, stairs=(first, *((moment + (latest - moment) * part, height) for moment, height in others))
                )
                for part in parts
            ]
        flat = replace(self, peak=1.0, start=0.0)
        lower = [replace(self, peak=1.0 + (self.peak - 1.0) * (1 - part)) for part in parts]
        return lower + [replace(flat, grow_until=self.grow_until + (latest - self.grow_until) * part) for part in parts]

    def path(self, smallest: float, budget: float) -> CostPath:
        """The shares of the dense cost for a space whose smallest network costs ``smallest``."""
        if self.stairs:
            points, cost = [(0.0, smallest)], smallest
            for moment, height in self.stairs:
                points.append((moment, cost))
                cost = max(smallest, height * budget)
                points.append((moment, cost))
            return CostPath(_sorted(points))
        peak = min(max(self.peak, 1.0) * budget, 1.0)
        start = min(max(self.start * budget, smallest), peak if self.start == math.inf else budget)
        return CostPath(
            _sorted(((0.0, start), (self.grow_until, peak), (self.hold_until, peak), (self.land_at, budget)))
        )


def _check_stairs(steps: tuple[tuple[float, float], ...]) -> None:
    """They begin with the run, rise, and end at the budget."""
    if not steps:
        return
    moments, heights = [moment for moment, _ in steps], [height for _, height in steps]
    rising = moments == sorted(moments) and all(a < b for a, b in pairwise(heights))
    if moments[0] != 0 or moments[-1] >= 1 or heights[0] <= 0 or heights[-1] != 1 or not rising:
        raise MeristemError(
            "the stairs of a schedule begin at 0, rise, and end with the whole budget before the run is over, e.g. "
            f"0.2@0+1@0.6, got {'+'.join(f'{height:g}@{moment:g}' for moment, height in steps)}"
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
