"""Budgets: what is understood, what is refused and in which words, and what a share is a share of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import meristem
from meristem import Budget, Method
from meristem.control import budget as budget_module
from meristem.control.decider import Decider
from meristem.cost import price as price_module
from meristem.cost.count import count_params
from meristem.cost.metrics import METRICS, Metric
from meristem.cost.price import Prices
from meristem.errors import BudgetError


@pytest.fixture(scope="module")
def prices() -> Prices:
    """24 parameters and 100 macs in full; 6 and 25 with one unit."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
    return Prices(meristem.trace(model, torch.ones(5, 3)))


@pytest.mark.parametrize(
    ("amount", "share"),
    [("50%", 0.5), (" 50 % ", 0.5), (0.5, 0.5), ("0.5", 0.5), (12, 0.5), ("12", 0.5), ("100%", 1.0), (1.0, 1.0)],
)
def test_amounts(amount: Any, share: float, prices: Prices) -> None:
    assert Budget(params=amount).shares(prices) == {"params": pytest.approx(share)}


def test_several_caps(prices: Prices) -> None:
    budget = Budget(params="50%", macs=40)
    assert budget.shares(prices) == pytest.approx({"params": 0.5, "macs": 0.4})
    assert budget.spend_share is None
    assert Budget(macs=0.5, spend="30%").spend_share == pytest.approx(0.3)


def test_more_than_the_model_is_the_model(prices: Prices) -> None:
    assert Budget(params=1000).shares(prices) == {"params": 1.0}


def test_the_smallest_network_is_reachable_and_less_is_not(prices: Prices) -> None:
    assert Budget(params=6).shares(prices) == {"params": 0.25}
    assert Budget(macs="25%").shares(prices) == {"macs": 0.25}
    for budget, amount, smallest, full in (
        (Budget(params=5), "5 params", "6", "24 parameters"),
        (Budget(params="24%"), "24% params", "6", "24 parameters"),
        (Budget(params="50%", macs="10%"), "10% macs", "25", "100 macs"),
    ):
        with pytest.raises(BudgetError, match="cannot be met") as error:
            budget.shares(prices)
        assert amount in str(error.value)
        assert f"has {smallest} (25.00%)" in str(error.value)
        assert str(error.value).endswith(f"the full one {full}")


@pytest.mark.parametrize(
    "amount",
    [
        "",
        "many",
        "36 percent",
        "-5%",
        -3,
        0,
        0.0,
        "0%",
        "101%",
        1.5,
        float("nan"),
        float("inf"),
        "nan",
        True,
        [5],
        "1e3",
    ],
)
def test_what_is_no_amount(amount: Any) -> None:
    """One sentence, with what was given and how to write it."""
    with pytest.raises(
        BudgetError, match=r"is not an amount: write a share up to 100% like .36%. or 0\.36, or a whole"
    ):
        Budget(params=amount)


def test_nothing_is_capped() -> None:
    with pytest.raises(BudgetError, match=r"needs params or macs, e\.g\. Budget\(params='36%'\)"):
        Budget()
    with pytest.raises(BudgetError, match="needs params or macs"):
        Budget(spend="30%")


def test_spend_is_a_share() -> None:
    with pytest.raises(BudgetError, match=r"spend=500 must be a share .* e\.g\. '30%'"):
        Budget(params="36%", spend=500)


def test_parse() -> None:
    assert Budget.parse("params=36%") == Budget.parse("36%") == Budget(params="36%")
    assert Budget.parse(" params = 36% , macs=1000 ,spend=30%") == Budget(params="36%", macs="1000", spend="30%")
    assert Budget.parse("macs=1000").macs == "1000"


@pytest.mark.parametrize("text", ["", "width=3", "params", "params:36%", "params=36%,,macs=5%", "params=36% macs=5%"])
def test_what_is_not_parsed(text: str) -> None:
    with pytest.raises(BudgetError, match=r"is not of the form|is not an amount"):
        Budget.parse(text)


def test_flops_are_two_to_a_multiply_add() -> None:
    assert Budget.parse("flops=50%") == Budget(flops="50%") == Budget(macs="50%")
    assert Budget(params="36%", flops=2_000_001) == Budget(params="36%", macs=1_000_000)
    with pytest.raises(BudgetError, match="names macs or flops"):
        Budget(macs="50%", flops="50%")
    with pytest.raises(BudgetError, match="flops='much' is not an amount"):
        Budget(flops="much")


def test_a_misspelt_metric_is_told() -> None:
    with pytest.raises(BudgetError, match="did you mean params"):
        Budget.parse("parms=36%")


def test_a_share_without_its_sign_is_told() -> None:
    space = meristem.trace(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(1, 8))
    with pytest.raises(BudgetError, match=r"the budget of 12 params cannot be met: .*; did you mean params=12%\?"):
        Budget(params=12).shares(Prices(space))


def test_text() -> None:
    """What a user reads, and what a checkpoint compares."""
    assert str(Budget(params=0.36, macs=1_000_000, spend="30%")) == "params 36%, macs 1,000,000, spend 30%"
    assert str(Budget(params="36%")) == str(Budget(params=0.36)) != str(Budget(params=0.37))


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        Budget(params="36%").params = "50%"  # type: ignore[misc]


def test_a_metric_named_twice() -> None:
    with pytest.raises(BudgetError, match="names params twice"):
        Budget.parse("params=36%,params=20%")


def test_another_kind_of_cost_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric in the table can be capped, parsed, priced and met; nothing else knows the names of metrics."""
    memory = Metric("memory", "memory", "bytes", lambda space, widths: 4 * count_params(space, widths))
    monkeypatch.setattr(budget_module, "METRICS", {**METRICS, "memory": memory})
    monkeypatch.setattr(price_module, "METRICS", {**METRICS, "memory": memory})
    budget = Budget.parse("memory=40%,params=90%")
    assert budget == Budget(params="90%", memory="40%")
    assert str(budget) == "params 90%, memory 40%"
    with pytest.raises(BudgetError, match="a budget cannot cap 'memroy'; did you mean memory"):
        Budget(memroy="40%")
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    space = meristem.trace(model, torch.randn(1, 8))
    decider = Decider(Method(), space, budget, epochs=4, fine_tune=0, seed=0)
    widths = {name: len(units) for name, units in decider.first_units.items()}
    assert decider.prices.share("memory", widths) <= 0.4
    assert decider.trajectory.caps == {"params": 0.9, "memory": 0.4}
