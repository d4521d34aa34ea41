"""The planned cost of a run: from a budget and a schedule to one path per metric, solved for a spend budget."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from meristem.control.budget import Budget
from meristem.control.fit_budget import fit, in_proportion
from meristem.control.proportions import EVEN, Proportions
from meristem.control.schedule import CostPath, Schedule
from meristem.cost.price import Prices
from meristem.errors import BudgetError


@dataclass(frozen=True)
class MacsAllowance:
    """How a cap on the training cost shares out the macs of a run whose budget does not name them (Eq. Allowance).

    ``total`` is the cap in epochs of the dense network, ``in_step`` the macs of every epoch if all groups grow in step.
    An epoch may cost the more above that, the less the epochs before have used of what they might. So the cap holds in
    the mean, and no epoch is held to what another one has saved.

    >>> allowance = MacsAllowance(total=1.2, in_step=(0.2, 0.4))
    >>> allowance.at(0, spent=0.0), allowance.at(1, spent=0.2)
    (0.4, 1.0)
    """

    total: float
    in_step: tuple[float, ...]

    def at(self, epoch: int, spent: float) -> float:
        """What the epoch (the first is 0) may cost when those before have cost ``spent``."""
        share_left = (self.total - spent) / sum(self.in_step[epoch:])
        return min(1.0, round(share_left * self.in_step[epoch], 12))


_EARLY = 0.25  # of the run, until which a cosine has hardly fallen
_AFTER_GROWTH = 0.05  # of the run, in which what came last learns at the full rate


@dataclass(frozen=True)
class RateHint:
    """A learning rate that suits a plan: a cosine, or constant until ``hold_until`` and then down to 0 in a line.

    >>> hint = RateHint(hold_until=0.7)
    >>> str(hint), hint.factor(0.6), round(hint.factor(0.85), 9)
    ('held@0.7', 1.0, 0.5)
    """

    hold_until: float = 0.0

    def factor(self, progress: float) -> float:
        """What the first learning rate is multiplied by, for `torch.optim.lr_scheduler.LambdaLR`."""
        if not self.hold_until:
            return 0.5 * (1 + math.cos(math.pi * progress))
        return min(1.0, max(0.0, 1 - progress) / (1 - self.hold_until))

    def __str__(self) -> str:
        return f"held@{self.hold_until:g}" if self.hold_until else "cosine"


@dataclass(frozen=True)
class Trajectory:
    """The highest cost of every epoch, as shares of the dense one."""

    paths: Mapping[str, CostPath]
    caps: Mapping[str, float]  # the budget
    epochs: int  # of growing
    last_decision: int  # after so many epochs structure is decided for the last time
    fine_tune: int = 0  # epochs after those of growing
    allowance: MacsAllowance | None = None  # of macs, where the training cost is capped and they are not
    multipliers: Mapping[str, float] = field(default_factory=dict)  # the proportions in which groups grow

    def at(self, epoch: int) -> dict[str, float]:
        """What the epoch (the first is 0) may cost; from the last decision on that is the budget.

        It is the mean of the path over the epoch: a run of few epochs does not spend the first of them at the size that
        a longer one has for a moment.
        """
        if epoch >= self.last_decision:
            return dict(self.caps)
        start, end = epoch / self.epochs, (epoch + 1) / self.epochs
        return {name: path.mean(start, end) for name, path in self.paths.items()}

    def limits(self, epoch: int, spent: float) -> dict[str, float]:
        """The same with the macs that a cap on the training cost leaves when epochs before have cost ``spent``."""
        limits = self.at(epoch)
        return limits if self.allowance is None else {**limits, "macs": self.allowance.at(epoch, spent)}

    def only_rises(self, epoch: int) -> bool:
        """Whether no epoch after this one may cost less than the one before."""
        later = [self.at(each) for each in range(epoch, self.last_decision + 1)]
        return self.allowance is None and all(
            before[name] <= after[name] * (1 + 1e-9) for before, after in pairwise(later) for name in self.caps
        )

    @property
    def rate_hint(self) -> RateHint:
        """What grows under a learning rate that has fallen learns little: the rate is held until growth is over."""
        until = max((end for path in self.paths.values() for end in path.rises_until()), default=0.0)
        return RateHint() if until <= _EARLY else RateHint(round(min(0.9, until + _AFTER_GROWTH), 3))

    def hardness(self, epoch: int) -> float:
        """How far gates are drawn to 1: not at all at the last decision, fully in the last epoch of growing."""
        return min(1.0, max(0, epoch - self.last_decision) / max(1, self.epochs - 1 - self.last_decision))

    def expected_spend_frac(self, prices: Prices) -> float:
        """The share of the dense training cost that is planned: without a plan for macs, that of growing in step."""
        total = self.epochs + self.fine_tune
        if "macs" in self.caps:
            return sum(self.at(epoch)["macs"] for epoch in range(total)) / total
        return sum(self.in_step_macs(prices)) / total

    def in_step_macs(self, prices: Prices) -> tuple[float, ...]:
        """The macs of every epoch if all groups grow in step."""
        known: dict[tuple[float, ...], float] = {}
        macs = []
        for epoch in range(self.epochs + self.fine_tune):
            limits = self.at(epoch)
            key = tuple(limits.values())
            if key not in known:
                masks = fit(prices, in_proportion(prices.space, self.multipliers), limits)
                known[key] = prices.share("macs", {name: int(mask.sum()) for name, mask in masks.items()})
            macs.append(known[key])
        return tuple(macs)


def plan_trajectory(
    budget: Budget,
    schedule: Schedule,
    prices: Prices,
    freeze: float,
    epochs: int,
    fine_tune: int = 0,
    proportions: Proportions = EVEN,
) -> Trajectory:
    """The trajectory of a run; refuses a spend budget that even the slowest growth would break.

    A spend budget is kept in the mean over the epochs, those of fine-tuning included. Where macs are named, too, their
    plan has no more than that mean; otherwise they are free within what it leaves. The schedule gives way in two steps:
    it gives up its peak, then it grows later.
    """
    # Structure is decided at the freeze for the last time, and never after the last epoch.
    last = max(0, min(epochs - 1, int(freeze * epochs + 1e-9)))
    schedule = schedule.before(freeze)
    caps = budget.shares(prices)
    plan = Trajectory(
        _paths(schedule, caps, prices),
        dict(caps),
        epochs,
        last,
        fine_tune,
        multipliers=proportions.multipliers(prices, caps),
    )
    spend = budget.spend_share
    if spend is None:
        return plan
    useful = replace(schedule, peak=min(schedule.peak, 1 / min(caps.values())))  # above it the full network is reached
    candidates = [replace(plan, paths=_paths(candidate, caps, prices)) for candidate in useful.slower(freeze)]
    # Each costs at most what the one before costs, and a cost takes a second to work out for a large network.
    kept = bisect_left(candidates, True, key=lambda each: each.expected_spend_frac(prices) <= spend)
    if kept < len(candidates):
        trajectory = candidates[kept]
        if "macs" in caps:
            return trajectory
        total = spend * (epochs + fine_tune)
        return replace(trajectory, allowance=MacsAllowance(total, trajectory.in_step_macs(prices)))
    needed = math.ceil(1000 * candidates[-1].expected_spend_frac(prices)) / 1000
    raise BudgetError(
        f"a spend of {spend:.1%} of the dense run cannot be kept with {budget}: growing as late as possible needs "
        f"{needed:.1%}; allow that, or a smaller network"
    )


def _paths(schedule: Schedule, caps: Mapping[str, float], prices: Prices) -> dict[str, CostPath]:
    return {name: schedule.path(prices.smallest[name], cap) for name, cap in caps.items()}
