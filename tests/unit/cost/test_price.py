"""Prices: shares of the dense cost, against counts by hand and against the zoo's closed forms."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import meristem
from meristem import count_macs, count_params
from meristem.cost.metrics import METRICS
from meristem.cost.price import Prices


@cache
def prices() -> Prices:
    """Per unit: 3 + 1 + 2 parameters, 5 * (3 + 2) macs; four units."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
    return Prices(meristem.trace(model, torch.ones(5, 3)))


def test_by_hand() -> None:
    assert prices().dense == {"params": 24.0, "macs": 100.0}
    assert prices().smallest == {"params": 0.25, "macs": 0.25}
    assert prices().shares({"0": 3}) == {"params": 0.75, "macs": 0.75}
    assert prices().share("macs", {"0": 2.5}) == pytest.approx(0.625)


def test_fits() -> None:
    """At the limit is not above it, even where the limit is a rounded number; a missing metric is no limit."""
    assert prices().fits({"0": 3}, {"params": 0.75, "macs": 0.75})
    assert prices().fits({"0": 3}, {"params": 0.75 - 1e-15})
    assert not prices().fits({"0": 3}, {"params": 0.7499999})
    assert not prices().fits({"0": 3}, {"params": 1.0, "macs": 0.5})
    assert prices().fits({"0": 4}, {})
    third = {"params": 1 / 3 * 3 * 0.25}
    assert prices().fits({"0": 1}, third)


@pytest.mark.parametrize("name", ["resnet", "vit", "lstm_lm", "resnext"])
def test_shares_of_the_zoo(name: str, space_of) -> None:
    space = space_of(name)
    found = Prices(space)
    rng = np.random.default_rng(0)
    widths = {group: int(rng.integers(1, units + 1)) for group, units in space.full.items()}
    assert found.shares(widths) == {
        "params": count_params(space, widths) / count_params(space),
        "macs": count_macs(space, widths) / count_macs(space),
    }
    assert found.shares(space.full) == {"params": 1.0, "macs": 1.0}
    assert set(METRICS) == {"params", "macs"}


def test_price_of_a_unit_by_hand() -> None:
    """A quarter of the dense cost, as a share of what is allowed: of one half it is one half. In every metric asked."""
    for width in (1, 2, 4):
        assert prices().of_unit({"0": width}, {"params": 1.0}) == {"params": {"0": pytest.approx(0.25)}}
    found = prices().of_unit({"0": 2}, {"params": 0.5, "macs": 1.0})
    assert found == {"params": {"0": pytest.approx(0.5)}, "macs": {"0": pytest.approx(0.25)}}


@pytest.mark.parametrize("name", ["resnet", "vit", "lstm_lm"])
def test_price_of_a_unit_is_what_one_more_or_less_costs(name: str, space_of) -> None:
    """Between what the last unit cost and what the next one will."""
    space = space_of(name)
    found = Prices(space)
    widths = {group: max(2, units // 2) for group, units in space.full.items()}
    for metric in METRICS:
        price = found.of_unit(widths, {metric: 1.0})[metric]
        for group, width in widths.items():
            now = found.share(metric, widths)
            last = now - found.share(metric, {**widths, group: width - 1})
            coming = found.share(metric, {**widths, group: width + 1}) - now
            assert last * (1 - 1e-9) <= price[group] <= coming * (1 + 1e-9), group
