"""The planned cost of a run: from a budget and a course to one path per metric, solved for a spend budget if asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from meristem.control.budget import Budget
from meristem.cost.price import Prices
from meristem.errors import BudgetError
from meristem.schedule import Course, Path


@dataclass(frozen=True)
class Trajectory:
    """``at(progress)`` gives the highest cost, as shares of the dense one, of the epoch that starts there."""

    paths: Mapping[str, Path]
    caps: Mapping[str, float]  # the budget
    settled: float  # progress from which on the plan is the budget

    def at(self, progress: float) -> dict[str, float]:
        return {name: path.at(progress) for name, path in self.paths.items()}

    def spend_frac(self, epochs: int) -> float:
        """The share of the dense training cost the plan allows: by the macs where they are planned, else the widest."""
        paths = [self.paths["macs"]] if "macs" in self.paths else list(self.paths.values())
        return max(path.mean(epochs) for path in paths)


def plan_trajectory(budget: Budget, course: Course, prices: Prices, freeze: float, epochs: int) -> Trajectory:
    """The trajectory of a run; refuses a spend budget that even the slowest growth would break.

    A spend budget is kept by planning the macs: they never stand above a path whose mean over the epochs is the
    spend. The course gives way in two steps: it gives up its peak, then it grows later.
    """
    caps = budget.shares(prices)
    course = replace(course, grown=min(course.grown, freeze), held=min(course.held, freeze))
    course = replace(course, landed=min(course.landed, freeze))
    spend = budget.spend_share
    if spend is None:
        return _trajectory(course, caps, prices)
    if "macs" not in caps:
        caps["macs"] = max(caps["params"], prices.smallest["macs"])
    for candidate in _slower(course, freeze):
        trajectory = _trajectory(candidate, caps, prices)
        if trajectory.spend_frac(epochs) <= spend:
            return trajectory
    least = _trajectory(_slower(course, freeze)[-1], caps, prices).spend_frac(epochs)
    raise BudgetError(
        f"a spend of {spend:.1%} of the dense run cannot be kept with {budget}: growing as late as possible needs "
        f"{least:.1%}; allow that, or a smaller network"
    )


def _trajectory(course: Course, caps: Mapping[str, float], prices: Prices) -> Trajectory:
    paths = {name: course.path(prices.smallest[name], cap) for name, cap in caps.items()}
    return Trajectory(paths, dict(caps), course.last_change)


def _slower(course: Course, latest: float) -> list[Course]:
    """The course itself, then with less and less of a peak, then growing later and later, never after ``latest``."""
    steps = 50
    flat = replace(course, peak=1.0, start=0.0)
    lower = [replace(course, peak=1.0 + (course.peak - 1.0) * (1 - n / steps)) for n in range(steps + 1)]
    later = [replace(flat, grown=course.grown + (latest - course.grown) * n / steps) for n in range(steps + 1)]
    return lower + later
