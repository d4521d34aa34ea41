"""Fit a network under limits: take units in order of preference as long as the cost allows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from meristem.cost.price import Prices
from meristem.space.arrays import BoolArray, FloatArray, IntArray
from meristem.space.space import Space, Stage

_AHEAD = 0.6  # by which the share of units that are live is ahead of that of the first blocks


def in_proportion(space: Space, multipliers: Mapping[str, float]) -> dict[str, FloatArray]:
    """The preference that gives groups shares of their units, the first ones, in proportion to ``multipliers``.

    A group without one counts with 1. All stages get the same share of their blocks. Of groups whose product is a
    dimension (heads, and what is inside of them) it is the product that is in proportion.
    """
    factors = space.factors
    in_order = {
        name: -(np.arange(group.units) ** factors[name]) / (group.units ** factors[name] * multipliers.get(name, 1.0))
        for name, group in space.groups.items()
    }
    return {**in_order, **in_stages({stage: [block.group for block in stage.blocks] for stage in space.stages})}


def in_stages(ordered: Mapping[Stage, Sequence[str]]) -> dict[str, FloatArray]:
    """The preference of blocks that shall come in these orders, each stage growing by the same share.

    Those that always live count too. Stages take turns: blocks are large, and one at a time fits a plan better. Widths
    go ahead of them: a network of few wide layers learns faster than one of many narrow ones, above all a plain one.
    """
    preference = {}
    for turn, (stage, names) in enumerate(ordered.items()):
        count = stage.fixed + len(stage.blocks)
        for rank, name in enumerate(names):
            preference[name] = np.array([-_entry((stage.fixed + rank + turn / (2 * len(ordered))) / count)])
    return preference


def _entry(share: float) -> float:
    """The share of units from which on a stage has this share of its blocks; at first they rise alike.

    >>> [round(_entry(share), 2) for share in (0.0, 0.1, 0.5, 1.0)]
    [0.6, 0.69, 0.89, 0.97]
    """
    return 1 - (1 - _AHEAD) * math.exp(-share / (1 - _AHEAD))


def fit(
    prices: Prices, preference: Mapping[str, FloatArray], limits: Mapping[str, float], align: int = 1
) -> dict[str, BoolArray]:
    """The units to live: by falling preference, never too few of a group, no metric above its limit, nothing more fits.

    Solving for the one number that, subtracted from all preferences, puts the cost on the plan is the same as finding
    how far down the order one can go; cost rises with every unit, so bisection finds it. Units of ``align`` come
    together. -inf keeps a unit out.
    """
    orders = {name: np.argsort(-values, kind="stable") for name, values in preference.items()}
    fewest = {name: prices.space.groups[name].min_units for name in orders}
    usable = {name: max(fewest[name], int((values > -np.inf).sum())) for name, values in preference.items()}
    first = {name: min(-(-fewest[name] // align) * align, usable[name]) for name in orders}
    groups, sizes = _items(preference, orders, usable, first, align)

    def widths(count: int) -> dict[str, int]:
        taken = np.bincount(groups[:count], weights=sizes[:count], minlength=len(orders))
        return {name: first[name] + int(taken[index]) for index, name in enumerate(orders)}

    if align > 1 and not prices.fits(widths(0), limits):
        return fit(prices, preference, limits)
    low, high = 0, len(groups)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if prices.fits(widths(middle), limits) else (low, middle - 1)
    final = _filled(prices, widths(low), groups[low:], sizes[low:], limits)
    masks = {name: np.zeros(len(order), dtype=np.bool_) for name, order in orders.items()}
    for name, order in orders.items():
        masks[name][order[: final[name]]] = True
    return masks


def _items(
    preference: Mapping[str, FloatArray],
    orders: Mapping[str, IntArray],
    usable: Mapping[str, int],
    first: Mapping[str, int],
    align: int,
) -> tuple[IntArray, IntArray]:
    """What can be taken after the first of every group, in order: the group's index and the number of units."""
    owners, ranks, sizes = [], [], []
    for index, (name, order) in enumerate(orders.items()):
        starts = np.arange(first[name], usable[name], align)
        owners.append(np.full(len(starts), index))
        ranks.append(preference[name][order[starts]])
        sizes.append(np.minimum(align, usable[name] - starts))
    order = np.argsort(-np.concatenate(ranks), kind="stable")
    return np.concatenate(owners)[order], np.concatenate(sizes)[order]


def _filled(
    prices: Prices, widths: dict[str, int], groups: IntArray, sizes: IntArray, limits: Mapping[str, float]
) -> dict[str, int]:
    """Go on down the order and take what still fits; a group that does not fit once will not fit later."""
    names = list(widths)
    shut: set[int] = set()
    for group, size in zip(groups.tolist(), sizes.tolist(), strict=True):
        if group in shut:
            if len(shut) == len(names):
                break
            continue
        more = {**widths, names[group]: widths[names[group]] + size}
        if prices.fits(more, limits):
            widths = more
        else:
            shut.add(group)
    return widths
