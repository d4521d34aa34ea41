"""The planned cost of a run: from a budget and a schedule to one path per metric, solved for a spend budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from meristem.control.budget import Budget
from meristem.control.fit_budget import even, fit
from meristem.control.schedule import CostPath, Schedule
from meristem.cost.price import Prices
from meristem.errors import BudgetError

_SPEND_SAMPLES = 200  # epochs at which a long run's planned training cost is worked out


@dataclass(frozen=True)
class Trajectory:
    """The highest cost of every epoch, as shares of the dense one."""

    paths: Mapping[str, CostPath]
    caps: Mapping[str, float]  # the budget
    epochs: int  # of growing
    last_decision: int  # after so many epochs structure is decided for the last time
    fine_tune: int = 0  # epochs after those of growing

    def at(self, epoch: int) -> dict[str, float]:
        """What the epoch (the first is 0) may cost; from the last decision on that is the budget."""
        if epoch >= self.last_decision:
            return dict(self.caps)
        return {name: path.at(epoch / self.epochs) for name, path in self.paths.items()}

    def hardness(self, epoch: int) -> float:
        """How far gates are drawn to 1: not at all at the last decision, fully in the last epoch of growing."""
        return min(1.0, max(0, epoch - self.last_decision) / max(1, self.epochs - 1 - self.last_decision))

    def spend_frac(self) -> float:
        """The share of the dense training cost the plan allows, where macs are planned."""
        epochs = self.epochs + self.fine_tune
        return sum(self.at(epoch)["macs"] for epoch in range(epochs)) / epochs

    def expected_spend_frac(self, prices: Prices) -> float:
        """The same for any budget: without a plan for macs, that of groups that grow in step."""
        if "macs" in self.caps:
            return self.spend_frac()
        alike, total = even(prices.space), self.epochs + self.fine_tune
        epochs = range(0, total, max(1, total // _SPEND_SAMPLES))
        networks = [fit(prices, alike, self.at(epoch)) for epoch in epochs]
        widths = [{name: int(mask.sum()) for name, mask in masks.items()} for masks in networks]
        return sum(prices.share("macs", each) for each in widths) / len(epochs)


def plan_trajectory(
    budget: Budget, schedule: Schedule, prices: Prices, freeze: float, epochs: int, fine_tune: int = 0
) -> Trajectory:
    """The trajectory of a run; refuses a spend budget that even the slowest growth would break.

    A spend budget is kept by planning the macs: they never stand above a path whose mean over the epochs, those of
    fine-tuning included, is the spend. The schedule gives way in two steps: it gives up its peak, then it grows later.
    """
    # Structure is decided at the freeze for the last time, and never after the last epoch.
    last = max(0, min(epochs - 1, int(freeze * epochs + 1e-9)))
    schedule = replace(
        schedule, **{name: min(getattr(schedule, name), freeze) for name in ("grow_until", "hold_until", "land_at")}
    )
    caps = budget.shares(prices)
    spend = budget.spend_share
    if spend is None:
        return Trajectory(_paths(schedule, caps, prices), dict(caps), epochs, last, fine_tune)
    if "macs" not in caps:
        caps["macs"] = max(*caps.values(), prices.smallest["macs"])
    useful = replace(schedule, peak=min(schedule.peak, 1 / min(caps.values())))  # above it the full network is reached
    for candidate in _slower(useful, freeze):
        trajectory = Trajectory(_paths(candidate, caps, prices), dict(caps), epochs, last, fine_tune)
        if trajectory.spend_frac() <= spend:
            return trajectory
    needed = math.ceil(1000 * trajectory.spend_frac()) / 1000
    raise BudgetError(
        f"a spend of {spend:.1%} of the dense run cannot be kept with {budget}: growing as late as possible needs "
        f"{needed:.1%}; allow that, or a smaller network"
    )


def _paths(schedule: Schedule, caps: Mapping[str, float], prices: Prices) -> dict[str, CostPath]:
    return {name: schedule.path(prices.smallest[name], cap) for name, cap in caps.items()}


def _slower(schedule: Schedule, latest: float) -> list[Schedule]:
    """The schedule itself, then with less and less of a peak, then growing later and later, up to ``latest``."""
    steps = 50
    flat = replace(schedule, peak=1.0, start=0.0)
    lower = [replace(schedule, peak=1.0 + (schedule.peak - 1.0) * (1 - n / steps)) for n in range(steps + 1)]
    later = [
        replace(flat, grow_until=schedule.grow_until + (latest - schedule.grow_until) * n / steps)
        for n in range(steps + 1)
    ]
    return lower + later
