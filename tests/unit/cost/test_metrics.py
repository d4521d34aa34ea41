"""Metrics: one entry per kind of budget is all that prices need."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import meristem
from meristem.cost import price
from meristem.cost.metrics import METRICS, Metric, Widths, one_unit_around


def test_names_are_keys() -> None:
    assert all(name == metric.name for name, metric in METRICS.items())


def test_a_unit_where_none_is_left() -> None:
    """There is nothing below no unit: the first whole one is priced."""
    assert one_unit_around(lambda widths: 2 * widths["a"], {"a": 0.0}, "a") == 2.0
    assert one_unit_around(lambda widths: widths["a"] ** 2, {"a": 0.25}, "a") == 1.0


def test_a_new_metric_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up latency: a step for each pair of units, so that a unit is priced by the pair that it opens."""

    def latency(space: meristem.Space, widths: Widths) -> float:
        return 10.0 + sum(-(-width // 2) for width in widths.values())

    def half_a_pair(cost, widths: Widths, group: str) -> float:
        return (cost({**widths, group: widths[group] + 2}) - cost(widths)) / 2

    entry = Metric("latency_ms", "latency", "ms", latency, half_a_pair)
    monkeypatch.setattr(price, "METRICS", {**METRICS, entry.name: entry})
    prices = price.Prices(meristem.trace(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.ones(5, 3)))
    assert prices.dense["latency_ms"] == 12.0
    assert prices.smallest["latency_ms"] == pytest.approx(11 / 12)
    assert prices.shares({"0": 3})["latency_ms"] == 1.0
    assert prices.fits({"0": 2}, {"latency_ms": 11 / 12})
    assert not prices.fits({"0": 3}, {"latency_ms": 11 / 12})
    assert prices.of_unit({"0": 2}, {"latency_ms": 0.5}) == {"latency_ms": {"0": pytest.approx(1 / 12)}}
