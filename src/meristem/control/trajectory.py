"""The planned cost of a run: from a budget and a course to one path per metric, solved for a spend budget if asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from meristem.control.budget import Budget
from meristem.cost.price import Prices
from meristem.errors import BudgetError
from meristem.schedule import Course, Path


@dataclass(frozen=True)
class Trajectory:
    """The highest cost of every epoch, as shares of the dense one."""

    paths: Mapping[str, Path]
    caps: Mapping[str, float]  # the budget
    epochs: int
    last_decision: int  # after so many epochs structure is decided for the last time

    def at(self, epoch: int) -> dict[str, float]:
        """What the epoch (the first is 0) may cost; from the last decision on that is the budget."""
        if epoch >= self.last_decision:
            return dict(self.caps)
        return {name: path.at(epoch / self.epochs) for name, path in self.paths.items()}

    def spend_frac(self) -> float:
        """The share of the dense training cost the plan allows, where macs are planned."""
        return sum(self.at(epoch)["macs"] for epoch in range(self.epochs)) / self.epochs


def plan_trajectory(budget: Budget, course: Course, prices: Prices, freeze: float, epochs: int) -> Trajectory:
    """The trajectory of a run; refuses a spend budget that even the slowest growth would break.

    A spend budget is kept by planning the macs: they never stand above a path whose mean over the epochs is the
    spend. The course gives way in two steps: it gives up its peak, then it grows later.
    """
    # Structure is decided at the freeze for the last time, and never after the last epoch.
    last = max(0, min(epochs - 1, int(freeze * epochs + 1e-9)))
    course = replace(course, **{name: min(getattr(course, name), freeze) for name in ("grown", "held", "landed")})
    caps = budget.shares(prices)
    spend = budget.spend_share
    if spend is None:
        return _trajectory(course, caps, prices, epochs, last)
    if "macs" not in caps:
        caps["macs"] = max(caps["params"], prices.smallest["macs"])
    for candidate in _slower(course, freeze):
        trajectory = _trajectory(candidate, caps, prices, epochs, last)
        if trajectory.spend_frac() <= spend:
            return trajectory
    least = math.ceil(1000 * trajectory.spend_frac()) / 1000
    raise BudgetError(
        f"a spend of {spend:.1%} of the dense run cannot be kept with {budget}: growing as late as possible needs "
        f"{least:.1%}; allow that, or a smaller network"
    )


def _trajectory(course: Course, caps: Mapping[str, float], prices: Prices, epochs: int, last: int) -> Trajectory:
    paths = {name: course.path(prices.smallest[name], cap) for name, cap in caps.items()}
    return Trajectory(paths, dict(caps), epochs, last)


def _slower(course: Course, latest: float) -> list[Course]:
    """The course itself, then with less and less of a peak, then growing later and later, up to ``latest``."""
    steps = 50
    flat = replace(course, peak=1.0, start=0.0)
    lower = [replace(course, peak=1.0 + (course.peak - 1.0) * (1 - n / steps)) for n in range(steps + 1)]
    later = [replace(flat, grown=course.grown + (latest - course.grown) * n / steps) for n in range(steps + 1)]
    return lower + later
