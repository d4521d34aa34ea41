"""The first network: the units that live when training begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from meristem.control.fit_budget import fit, in_proportion
from meristem.control.trajectory import Trajectory
from meristem.cost.price import Prices
from meristem.errors import BudgetError, MeristemError
from meristem.space.arrays import IntArray

Units = dict[str, IntArray]  # of every group, by index


class Start(Protocol):
    """A rule for the first network. ``native_scale``: its weights are as large as if it had been built at that size."""

    @property
    def native_scale(self) -> bool: ...

    @property
    def needs_widths(self) -> bool:
        """Whether widths have to be given before it can be used."""
        ...

    def units(self, prices: Prices, trajectory: Trajectory) -> Units: ...


@dataclass(frozen=True)
class PlannedShare:
    """All groups in the method's proportions, as large as the plan of the first epoch allows."""

    native_scale: bool = False

    needs_widths = False

    def units(self, prices: Prices, trajectory: Trajectory) -> Units:
        groups = prices.space.groups
        in_order = in_proportion(prices.space, trajectory.multipliers)
        masks = fit(prices, in_order, trajectory.limits(0, spent=0.0))
        inactive = prices.space.inactive_groups(masks)  # what lies there costs nothing, so all of it was taken
        return {
            name: np.flatnonzero(mask)[: groups[name].min_units if name in inactive else None]
            for name, mask in masks.items()
        }


@dataclass(frozen=True)
class SmallestNetwork:
    """As few units of every group as there must be, one as a rule, and no block that may be absent."""

    native_scale = False
    needs_widths = False

    def units(self, prices: Prices, trajectory: Trajectory) -> Units:
        if not trajectory.last_decision:  # too short for a decision: it starts where it must end
            return PlannedShare().units(prices, trajectory)
        return {name: np.arange(group.min_units) for name, group in prices.space.groups.items()}


@dataclass(frozen=True)
class FullNetwork:
    """All units and blocks. A run that is too short for a decision starts where it must end: within the budget."""

    native_scale = False
    needs_widths = False

    def units(self, prices: Prices, trajectory: Trajectory) -> Units:
        if not trajectory.last_decision:
            return PlannedShare().units(prices, trajectory)
        return {name: np.arange(group.units) for name, group in prices.space.groups.items()}


@dataclass(frozen=True)
class FewestBlocks:
    """All units, and no block that may be absent."""

    native_scale = False
    needs_widths = False

    def units(self, prices: Prices, trajectory: Trajectory) -> Units:
        widths = {name: group.units * bool(group.min_units) for name, group in prices.space.groups.items()}
        return _checked(widths, prices, trajectory)


@dataclass(frozen=True)
class GivenWidths:
    """The first units of every group, as many as ``widths`` say; None: they are still to be given."""

    widths: tuple[tuple[str, int], ...] | None = None

    native_scale = True

    @property
    def needs_widths(self) -> bool:
        return self.widths is None

    def units(self, prices: Prices, trajectory: Trajectory) -> Units:
        if self.widths is None:
            raise MeristemError("the method direct needs the widths to train: methods.direct(widths)")
        return _checked(dict(self.widths), prices, trajectory)


def _checked(widths: Mapping[str, Any], prices: Prices, trajectory: Trajectory) -> Units:
    """The units for these widths; refuses those of another model and those that cost more than the budget."""
    if different := sorted(set(widths) ^ set(prices.space.groups)):
        raise MeristemError(f"the method's widths do not belong to this model: {different[0]!r} is only in one of them")
    for name, width in widths.items():
        if isinstance(width, bool) or not isinstance(width, Integral):
            raise MeristemError(f"the method's widths must be whole numbers, got {width!r} for {name}")
    if not prices.fits(widths, trajectory.caps):
        shares = ", ".join(f"{share:.1%} of the {name}" for name, share in prices.shares(widths).items())
        caps = ", ".join(f"{cap:.1%} of the {name}" for name, cap in trajectory.caps.items())
        raise BudgetError(f"the method's widths have {shares}, which is more than the budget ({caps})")
    macs, allowance = prices.share("macs", widths), trajectory.allowance
    if allowance is not None and macs > allowance.at(0, spent=0.0) * (1 + 1e-9) and trajectory.last_decision == 0:
        raise BudgetError(f"the method's widths cost {macs:.1%} of the dense run, which is more than the spend allows")
    return {name: np.arange(width) for name, width in widths.items()}
