"""MorphNet: its penalty by hand, units that die under it, and one factor that widens what is left to the budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import meristem
from growing import Growth
from meristem import Budget, methods
from meristem.control.controller import View
from meristem.control.rivals.morphnet import CostPenalty, ShrinkThenWiden
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.gating.interfaces import WeightsOf
from meristem.gating.unit_weights import UnitWeights
from nets.common import seq

NET = "resnet"


def chain() -> nn.Module:
    torch.manual_seed(0)
    return seq(
        a=nn.Conv2d(3, 4, 3, bias=False),
        norm_a=nn.BatchNorm2d(4),
        b=nn.Conv2d(4, 6, 3, bias=False),
        norm_b=nn.BatchNorm2d(6),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        head=nn.Linear(6, 2, bias=False),
    )


def test_the_penalty_by_hand() -> None:
    """The slope on a scale is strength * price * sign; the price of a unit counts inputs and outputs of its layers."""
    model = chain()
    space = meristem.trace(model, torch.ones(1, 3, 8, 8))
    live = meristem.Live(model, space)
    macs = {"a": 3 * 9 * 36, "b": 9 * 16}  # of one unit of a made; of one input for one output of b
    expected = {"a": macs["a"] + macs["b"] * 6, "b": macs["b"] * 4 + 2}
    total = Prices(space).dense["macs"]
    prices = Prices(space).of_unit(space.full, {"macs": 1.0})["macs"]
    assert {name: price * total for name, price in prices.items()} == pytest.approx(expected)

    with torch.no_grad():
        model.norm_a.weight.copy_(torch.tensor([1.0, -2.0, 0.5, 3.0]))
    weights = UnitWeights(live, WeightsOf.SCALE)
    CostPenalty(strength=0.1).before_step(weights, prices, None)
    slope = 0.1 * expected["a"] / total
    assert model.norm_a.weight.grad.tolist() == pytest.approx([slope, -slope, slope, slope], rel=1e-4)
    assert model.norm_b.weight.grad.tolist() == pytest.approx([0.1 * expected["b"] / total] * 6, rel=1e-4)
    others = [each for name, each in model.named_parameters() if not name.startswith("norm")]
    others += [model.norm_a.bias, model.norm_b.bias]
    assert all(each.grad is None or not each.grad.any() for each in others)


def test_without_norms_the_filters_count() -> None:
    model = seq(a=nn.Linear(3, 4, bias=False), act=nn.ReLU(), head=nn.Linear(4, 2))
    live = meristem.Live(model, meristem.trace(model, torch.ones(1, 3)))
    norms = UnitWeights(live, WeightsOf.SCALE).norms(2.0)["a"]
    assert norms == pytest.approx(model.a.weight.detach().norm(dim=1).double().numpy())


def test_one_factor_widens_what_is_left_to_the_budget() -> None:
    """Widths of 2 of 4 and 2 of 6 stay in proportion; units that are left stay, and no unit more would fit."""
    model = chain()
    space = meristem.trace(model, torch.ones(1, 3, 8, 8))
    prices = Prices(space)
    scores = {"a": np.array([0.0, 1.0, 0.005, 2.0]), "b": np.array([1.0, 0.0, 0.0, 2.0, 0.0, 0.009])}
    live = {name: np.ones(len(values), dtype=bool) for name, values in scores.items()}
    cap = {"macs": prices.share("macs", {"a": 3, "b": 3}) * 1.0001}

    def decided(last: bool) -> dict[str, list[int]]:
        view = View(scores, scores, live, live, {"macs": 1.0}, cap, last, prices)
        found = ShrinkThenWiden().decide(view, np.random.default_rng(0)).live
        return {name: np.flatnonzero(mask).tolist() for name, mask in found.items()}

    assert decided(last=False) == {"a": [1, 3], "b": [0, 3]}
    widened = decided(last=True)
    assert {name: len(units) for name, units in widened.items()} == {"a": 3, "b": 3}
    assert {1, 3} <= set(widened["a"])
    assert {0, 3} <= set(widened["b"])


def test_units_die_and_the_run_lands_on_its_budget(space_of) -> None:
    strong = methods.parse_method("morphnet:strength=100:threshold=0.5")
    growth = Growth(NET, space_of(NET), strong, epochs=8, steps=6, budget=Budget(params="50%")).go()
    records = growth.grower.records
    assert records[0]["params_frac"] == 1.0
    assert min(record["params_frac"] for record in records[:4]) < 1.0, "nothing died"
    assert 0.45 < records[-1]["params_frac"] <= 0.5
    assert [record["stage"] for record in records] == ["search"] * 4 + ["fine-tune"] * 4


def test_a_strength_below_zero_is_refused() -> None:
    with pytest.raises(MeristemError, match="strength of a cost penalty"):
        CostPenalty(strength=-1.0)
