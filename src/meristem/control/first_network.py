"""The first network: the units that live when training begins."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meristem.control.budget import Budget
from meristem.control.fit_budget import even, fit
from meristem.control.method import Method
from meristem.control.trajectory import Trajectory
from meristem.cost.price import Prices
from meristem.grower_checks import check_widths
from meristem.space.arrays import IntArray


def first_units(method: Method, prices: Prices, trajectory: Trajectory, budget: Budget) -> dict[str, IntArray]:
    """The same share of every group, or the widths the method asks for."""
    groups = prices.space.groups
    widths: Mapping[str, int] | None = None if method.widths is None else dict(method.widths)
    if widths is None and method.full_width:
        widths = {name: group.units * bool(group.min_units) for name, group in groups.items()}
    if widths is None:
        masks = fit(prices, even(prices.space), trajectory.at(0))
        inactive = prices.space.inactive_groups(masks)  # what lies there costs nothing, so all of it was taken
        return {
            name: np.flatnonzero(mask)[: groups[name].min_units if name in inactive else None]
            for name, mask in masks.items()
        }
    check_widths(widths, prices, trajectory.caps, budget)
    return {name: np.arange(width) for name, width in widths.items()}
