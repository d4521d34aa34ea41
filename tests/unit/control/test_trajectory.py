"""Trajectories: the plan of a run epoch by epoch, and how it gives way to a spend budget."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

import meristem
from meristem import Budget
from meristem.control.schedule import Schedule
from meristem.control.trajectory import plan_trajectory
from meristem.cost.price import Prices
from meristem.errors import BudgetError

COURSE = Schedule(start=0.1, grow_until=0.2, peak=2.0, hold_until=0.4, land_at=0.6)
BOTH = Budget(params="40%", macs="30%")


@cache
def prices() -> Prices:
    net = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 4))
    return Prices(meristem.trace(net, torch.ones(1, 4)))


def test_a_plan_that_rises_above_its_budget_comes_down_again() -> None:
    found = plan_trajectory(BOTH, COURSE, prices(), 0.75, 10)
    assert not found.only_rises(0)
    assert found.only_rises(6)
    assert plan_trajectory(BOTH, replace(COURSE, peak=1.0), prices(), 0.75, 10).only_rises(0)
    shared_out = plan_trajectory(Budget(params="40%", spend="30%"), replace(COURSE, peak=1.0), prices(), 0.75, 10)
    assert not shared_out.only_rises(0)


def test_one_path_for_each_cap() -> None:
    found = plan_trajectory(BOTH, COURSE, prices(), 0.75, 10)
    assert found.caps == pytest.approx({"params": 0.4, "macs": 0.3})
    assert found.paths["params"].at(0.0) == pytest.approx(0.04)
    assert found.at(0) == pytest.approx({name: path.mean(0.0, 0.1) for name, path in found.paths.items()})
    assert found.at(3) == pytest.approx({"params": 0.8, "macs": 0.6})
    for epoch in (6, 7, 8, 9):
        assert found.at(epoch) == pytest.approx(found.caps)
    assert found.last_decision == 7
    assert plan_trajectory(Budget(macs="30%"), COURSE, prices(), 0.75, 10).caps.keys() == {"macs"}


@pytest.mark.parametrize("freeze", [0.1, 0.3, 0.5])
def test_landed_before_the_freeze(freeze: float) -> None:
    """A schedule that is slower than the freeze allows is pulled forward: at the freeze the plan is the budget."""
    found = plan_trajectory(BOTH, COURSE, prices(), freeze, 100)
    assert found.last_decision == round(100 * freeze)
    assert found.at(found.last_decision) == pytest.approx(found.caps)
    before, after = found.at(found.last_decision - 1)["params"], found.caps["params"]
    assert before == pytest.approx(after, rel=0.15) or freeze <= COURSE.hold_until


def test_never_above_the_dense_cost() -> None:
    found = plan_trajectory(Budget(params="90%"), replace(COURSE, peak=5.0), prices(), 0.75, 50)
    assert max(found.at(n)["params"] for n in range(50)) == pytest.approx(1.0)


def test_planned_spend_is_the_mean_of_the_planned_macs() -> None:
    found = plan_trajectory(BOTH, COURSE, prices(), 0.75, 7)
    assert found.expected_spend_frac(prices()) == pytest.approx(sum(found.at(n)["macs"] for n in range(7)) / 7)


def test_a_loose_spend_changes_nothing() -> None:
    free, asked = (plan_trajectory(budget, COURSE, prices(), 0.75, 20) for budget in (BOTH, BOTH.replace(spend=1.0)))
    assert [free.at(n) for n in range(20)] == [asked.at(n) for n in range(20)]


def test_a_spend_budget_takes_the_peak_first_and_then_waits() -> None:
    """Less and less is asked for: the plan is never above it and close to it, first with a peak, then without one."""
    free = plan_trajectory(BOTH, COURSE, prices(), 0.75, 100).expected_spend_frac(prices())
    peaks, spends = [], [free * part for part in (0.95, 0.9, 0.8, 0.6, 0.5)]
    for spend in spends:
        found = plan_trajectory(BOTH.replace(spend=spend), COURSE, prices(), 0.75, 100)
        assert spend - 0.03 < found.expected_spend_frac(prices()) <= spend
        assert found.at(99) == pytest.approx({"params": 0.4, "macs": 0.3})
        peaks.append(max(found.at(n)["macs"] for n in range(100)))
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > 0.31
    assert peaks[-1] == pytest.approx(0.3)


def test_a_spend_budget_leaves_the_macs_free_where_only_parameters_are_capped() -> None:
    """No epoch's macs are capped for their own sake: what the epochs before have saved, a later one may use."""
    found = plan_trajectory(Budget(params="40%", spend="30%"), COURSE, prices(), 0.75, 20)
    assert set(found.caps) == {"params"}
    assert found.expected_spend_frac(prices()) <= 0.3
    in_step = found.in_step_macs(prices())
    frugal, planned = (found.limits(10, spent)["macs"] for spent in (1.0, sum(in_step[:10])))
    assert frugal > planned >= in_step[10]


@pytest.mark.parametrize("appetite", [1.0, 0.7, 0.3])
def test_an_allowance_is_kept_in_the_mean_whatever_is_taken_of_it(appetite: float) -> None:
    """Epochs that take all they may end at the cap exactly; those that take a part of it leave the rest unused."""
    found = plan_trajectory(Budget(params="40%", spend="32%"), COURSE, prices(), 0.75, 20)
    spent, last = 0.0, 0.0
    for epoch in range(20):
        last = found.limits(epoch, spent)["macs"] if epoch <= found.last_decision else last
        spent += appetite * last if epoch < found.last_decision else last
    assert spent / 20 <= 0.32 + 1e-9
    assert appetite < 1 or spent / 20 == pytest.approx(0.32, rel=1e-6)


def test_a_spend_budget_where_only_macs_are_capped() -> None:
    found = plan_trajectory(Budget(macs="40%", spend="30%"), COURSE, prices(), 0.75, 20)
    assert found.expected_spend_frac(prices()) <= 0.3


def test_an_impossible_spend() -> None:
    """Growing as late as the freeze allows still needs something: the message names what was asked and is needed."""
    with pytest.raises(BudgetError, match=r"a spend of 1\.0% .* cannot be kept with params 40%, macs 30%") as error:
        plan_trajectory(BOTH.replace(spend="1%"), COURSE, prices(), 0.75, 20)
    needs = float(str(error.value).partition("needs ")[2].partition("%")[0]) / 100
    assert 0.25 * 0.3 < needs < 0.3
    plan_trajectory(BOTH.replace(spend=needs), COURSE, prices(), 0.75, 20)


def test_the_rate_is_held_where_growth_comes_late() -> None:
    def hint(schedule: Schedule) -> str:
        return str(plan_trajectory(BOTH, schedule, prices(), 0.75, 20).rate_hint)

    assert hint(Schedule()) == "cosine"
    assert hint(Schedule(stairs=((0.0, 0.2), (0.6, 1.0)))) == "held@0.65"
    assert hint(Schedule(start=1.0, grow_until=0.0)) == "cosine"


def test_stairs_give_way_to_a_spend_budget_too() -> None:
    stairs = Schedule(stairs=((0.0, 0.5), (0.2, 1.0)))
    free = plan_trajectory(BOTH, stairs, prices(), 0.75, 100).expected_spend_frac(prices())
    capped = plan_trajectory(Budget(params="40%", macs="30%", spend=0.8 * free), stairs, prices(), 0.75, 100)
    assert 0.75 * free < capped.expected_spend_frac(prices()) <= 0.8 * free
