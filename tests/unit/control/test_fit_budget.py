"""Fitting under limits, against all networks of a space small enough to list them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import meristem
from meristem.control.fit_budget import fit
from meristem.cost.price import Prices
from meristem.space.arrays import BoolArray, FloatArray

Widths = Mapping[str, int]


@cache
def prices() -> Prices:
    """Groups of 3, 5 and 2 units whose units cost differently in parameters and macs."""
    net = nn.Sequential(
        nn.Conv1d(2, 3, 2), nn.ReLU(), nn.Conv1d(3, 5, 2, stride=2), nn.ReLU(), nn.Conv1d(5, 2, 1), nn.Conv1d(2, 2, 2)
    )
    found = Prices(meristem.trace(net, torch.ones(1, 2, 8)))
    assert list(found.space.full.values()) == [3, 5, 2]
    return found


preferences = st.integers(0, 10_000).map(
    lambda seed: {
        name: np.random.default_rng(seed + units).permutation(units * 3)[:units].astype(float)
        for name, units in prices().space.full.items()
    }
)
limit = st.floats(0.0, 1.1)


def widths(masks: Mapping[str, BoolArray]) -> dict[str, int]:
    return {name: int(mask.sum()) for name, mask in masks.items()}


def best(preference: Mapping[str, FloatArray], limits: Mapping[str, float], align: int) -> dict[str, BoolArray]:
    """By listing: of all networks under the limits that hold the first units of each group, the one that has the most
    preferred further unit; among those, the second; and so on."""
    orders = {name: np.argsort(-values, kind="stable").tolist() for name, values in preference.items()}
    starts = {name: list(range(align, len(order), align)) for name, order in orders.items()}
    items = sorted(
        (
            (-preference[name][orders[name][start]], index, start, name)
            for index, name in enumerate(orders)
            for start in starts[name]
        )
    )
    choices = [
        [min(align, len(orders[name])), *(min(s + align, len(orders[name])) for s in starts[name])] for name in orders
    ]
    networks = [dict(zip(orders, sizes, strict=True)) for sizes in product(*choices)]
    allowed = [network for network in networks if prices().fits(network, limits)]
    won = max(allowed, key=lambda network: [network[name] > start for _, _, start, name in items])
    masks = {name: np.zeros(len(order), dtype=bool) for name, order in orders.items()}
    for name, order in orders.items():
        masks[name][order[: won[name]]] = True
    return masks


@settings(max_examples=150)
@given(preference=preferences, params=limit, macs=limit, align=st.integers(1, 3))
def test_against_all_networks(preference: dict[str, FloatArray], params: float, macs: float, align: int) -> None:
    limits = {"params": params, "macs": macs}
    first = {name: min(align, units) for name, units in prices().space.full.items()}
    found = fit(prices(), preference, limits, align)
    if prices().fits(first, limits):
        expected = best(preference, limits, align)
        assert all(np.array_equal(found[name], expected[name]) for name in expected), (found, expected)


@settings(max_examples=150)
@given(preference=preferences, params=limit, macs=limit)
def test_nothing_more_fits(preference: dict[str, FloatArray], params: float, macs: float) -> None:
    """Not above a limit unless the smallest network is; never empty; no unit could be added to any group."""
    limits = {"params": params, "macs": macs}
    found = widths(fit(prices(), preference, limits))
    assert min(found.values()) >= 1
    if not prices().fits(prices().space.smallest, limits):
        assert found == prices().space.smallest
        return
    assert prices().fits(found, limits)
    for name, units in prices().space.full.items():
        if found[name] < units:
            assert not prices().fits({**found, name: found[name] + 1}, limits), name


@settings(max_examples=80)
@given(preference=preferences, params=limit)
def test_the_best_of_each_group(preference: dict[str, FloatArray], params: float) -> None:
    for name, mask in fit(prices(), preference, {"params": params}).items():
        if not mask.all():
            assert preference[name][mask].min() > preference[name][~mask].max()


def test_no_limit_takes_all() -> None:
    even = {name: np.zeros(units) for name, units in prices().space.full.items()}
    assert widths(fit(prices(), even, {})) == prices().space.full
    assert widths(fit(prices(), even, {"params": 1.0, "macs": 1.0})) == prices().space.full


def test_equals_are_taken_in_order() -> None:
    """Nothing random decides: of equal units the first ones of the first groups live."""
    even = {name: np.zeros(units) for name, units in prices().space.full.items()}
    for mask in fit(prices(), even, {"params": 0.5}).values():
        assert mask.tolist() == sorted(mask.tolist(), reverse=True)


def test_minus_infinity_keeps_out() -> None:
    """Unless the group would be empty: then one of its units must do."""
    first, second, third = prices().space.full
    preference = {first: np.array([-np.inf, 1.0, -np.inf]), second: np.zeros(5), third: np.full(2, -np.inf)}
    for align in (1, 2):
        found = fit(prices(), preference, {"params": 1.0}, align)
        assert found[first].tolist() == [False, True, False]
        assert found[second].all()
        assert found[third].sum() == 1


def test_too_tight_to_be_aligned() -> None:
    """The limit is the law, the multiple a wish."""
    preference = {name: -np.arange(units, dtype=float) for name, units in prices().space.full.items()}
    first = {name: min(3, units) for name, units in prices().space.full.items()}
    tight = {"params": prices().share("params", first) * 0.9}
    found = widths(fit(prices(), preference, tight, align=3))
    assert prices().fits(found, tight)
    assert min(found.values()) >= 1


@pytest.mark.parametrize("align", [1, 2])
def test_nothing_is_mutated(align: int) -> None:
    preference = {name: np.arange(units, dtype=float) for name, units in prices().space.full.items()}
    before = {name: values.copy() for name, values in preference.items()}
    fit(prices(), preference, {"macs": 0.5}, align)
    assert all(np.array_equal(preference[name], before[name]) for name in before)
