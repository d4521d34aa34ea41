"""What a budget says about the costs it does not name: about the range in which those of the final network will lie."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meristem.control.controller import widths_of
from meristem.control.fit_budget import fit, in_proportion
from meristem.cost.price import Prices
from meristem.space.arrays import FloatArray

Range = tuple[float, float]  # shares of the dense cost


def in_step_range(prices: Prices, caps: Mapping[str, float], multipliers: Mapping[str, float]) -> dict[str, Range]:
    """The range for a network whose groups keep these proportions: one number."""
    shares = prices.shares(widths_of(fit(prices, in_proportion(prices.space, multipliers), caps)))
    return {name: (share, share) for name, share in shares.items() if name not in caps}


def possible_range(prices: Prices, caps: Mapping[str, float], multipliers: Mapping[str, float]) -> dict[str, Range]:
    """About the range for a network that uses the budget up: groups that are cheap, or dear, in a metric come first.

    Prices are those of one network, so that the ends are near the extremes, not exactly there.
    """
    in_step = widths_of(fit(prices, in_proportion(prices.space, multipliers), caps))
    unit_prices = prices.of_unit(in_step, dict.fromkeys(prices.dense, 1.0))
    ranges = {}
    for name in prices.dense:
        if name in caps:
            continue
        ratio = {
            group: unit_prices[name][group] / max(unit_prices[cap][group] / caps[cap] for cap in caps)
            for group in prices.space.groups
        }
        networks = [in_step, *(widths_of(fit(prices, _by(prices, ratio, sign), caps)) for sign in (-1, 1))]
        found = [prices.share(name, widths) for widths in networks]
        ranges[name] = (min(found), max(found))
    return ranges


def _by(prices: Prices, ratio: Mapping[str, float], sign: int) -> dict[str, FloatArray]:
    """The preference for units of groups with a high ratio, or a low one; among those of one group for the first."""
    return {
        name: sign * np.log(ratio[name]) - 1e-9 * np.arange(group.units) for name, group in prices.space.groups.items()
    }
