"""ISS: the full network at first, units that die under a lasso and go, and at the last decision the budget."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn, optim

import meristem
from growing import Growth, assert_same, everything
from helpers import assert_near, build, run
from meristem import Budget, Grower, Method, Space
from meristem.control.controller import View
from meristem.control.rivals.iss import Lasso, PruneDead, alive_units, iss
from meristem.cost.price import Prices
from meristem.errors import BudgetError, FileError, MeristemError
from meristem_bench.cli import main
from nets.common import classifier, conv_bn, seq
from nets.recurrent import Recurrent

SpaceOf = Callable[[str], Space]
STRONG = Lasso(strength=0.3, threshold=0.05)  # kills within a few dozen steps


# --- deciding -----------------------------------------------------------------------------------------------------


def decided(space: Space, norms: dict[str, list[float]], last: bool, cap: float = 1.0, compact: bool = True) -> object:
    prices = Prices(space)
    scores = {name: np.array(values) for name, values in norms.items()}
    live = {name: np.arange(len(values)) != 1 for name, values in scores.items()}  # the second unit went long ago
    view = View(scores, scores, live, live, {"params": 1.0}, {"params": cap}, last, prices)
    found = PruneDead(compact).decide(view, np.random.default_rng(0)).live
    assert all((found[name] <= live[name]).all() for name in live), "a unit came back"
    return {name: np.flatnonzero(mask).tolist() for name, mask in found.items()}


def two_layers() -> Space:
    return meristem.trace(
        seq(a=nn.Linear(3, 4), act=nn.ReLU(), b=nn.Linear(4, 4), act_b=nn.ReLU(), head=nn.Linear(4, 2)),
        torch.ones(1, 3),
    )


def test_dead_units_go_and_a_group_is_never_empty() -> None:
    norms = {"a": [0.0, 9.0, 2.0, 3.0], "b": [0.0, 0.0, 0.0, 0.0]}
    assert decided(two_layers(), norms, last=False) == {"a": [2, 3], "b": [0]}
    assert decided(two_layers(), norms, last=False, compact=False) == {"a": [0, 2, 3], "b": [0, 2, 3]}
    assert decided(two_layers(), norms, last=True, compact=False) == {"a": [2, 3], "b": [0]}


def test_at_the_last_decision_the_smallest_norms_go_until_it_fits() -> None:
    """Before it nothing is forced out; what costs less than the budget stays as it is."""
    space = two_layers()
    norms = {"a": [1.0, 0.0, 2.0, 3.0], "b": [4.0, 0.0, 5.0, 0.5]}
    everyone = {"a": [0, 2, 3], "b": [0, 2, 3]}
    cap = Prices(space).share("params", {"a": 2, "b": 2})
    assert decided(space, norms, last=False, cap=cap) == everyone
    assert decided(space, norms, last=True, cap=cap) == {"a": [2, 3], "b": [0, 2]}
    assert decided(space, norms, last=True) == everyone


# --- in a run -----------------------------------------------------------------------------------------------------

NETS = {
    "conv": (lambda: classifier(24, conv_bn(3, 16), conv_bn(16, 24)), (torch.ones(2, 3, 8, 8),)),
    "mlp": (lambda: seq(a=nn.Linear(5, 32), act=nn.Tanh(), head=nn.Linear(32, 3)), (torch.ones(2, 5),)),
    "lstm": (lambda: Recurrent(nn.LSTM(12, 24, batch_first=True), 11), (torch.zeros(2, 6, dtype=torch.long),)),
}


@cache
def traced(name: str) -> Space:
    return meristem.trace(NETS[name][0](), NETS[name][1])


@pytest.mark.parametrize("lasso", [Lasso(0.0), STRONG], ids=["no lasso", "strong lasso"])
@pytest.mark.parametrize("name", NETS)
def test_law_9_the_budget_is_a_cap(name: str, lasso: Lasso) -> None:
    """Full until the last decision, or until units die; never above the budget after it, whatever the length."""
    make, inputs = NETS[name]
    space = traced(name)
    for amount, epochs in (("10%", 6), ("60%", 3), ("60%", 1)):
        torch.manual_seed(0)
        model = make()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        budget = Budget(params=amount, macs=amount)
        grower = Grower(model, optimizer, inputs, budget=budget, epochs=epochs, method=iss(lasso), space=space)
        assert (grower.widths == space.full) == (epochs > 1)
        bound = grower.expected_spend_frac
        for _ in range(epochs):
            for _ in range(30):
                for parameter in model.parameters():
                    parameter.grad = 0.01 * torch.randn_like(parameter)
                optimizer.step()
            grower.step()
        last = grower.trajectory.last_decision
        widths = [record["widths"] for record in grower.records]
        if not lasso.strength:
            assert widths[: max(last, 0)] == [space.full] * last
        elif epochs == 6:
            assert sum(widths[1].values()) < sum(space.full.values()), "nothing died"
        shares = Prices(space).shares(grower.widths)
        cap = float(amount.rstrip("%")) / 100
        assert all(share <= cap + 1e-9 for share in shares.values())
        assert grower.ledger.spend_frac <= bound + 1e-9
        assert sum(p.numel() for p in model.parameters()) == grower.records[-1]["params"]


def test_no_lasso_acts_after_the_last_decision() -> None:
    model = NETS["mlp"][0]()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    method = dataclasses.replace(iss(Lasso(1.0)), freeze=0.5)
    grower = Grower(model, optimizer, NETS["mlp"][1], budget=Budget(params="50%"), epochs=4, method=method)
    for epoch in range(4):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        optimizer.step()
        moved = [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
        assert moved == (["a.weight", "head.weight"] if epoch < 2 else [])
        grower.step()


def test_the_compacted_network_trains_as_the_uncompacted_one() -> None:
    """Units whose weights and biases are zero get no gradient: taking them out changes no loss, up to rounding."""
    losses = {}
    for compact in (True, False):
        torch.manual_seed(0)
        model = NETS["lstm"][0]().double()
        with torch.no_grad():
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
                getattr(model.rnn, name).view(4, 24, -1)[:, 3:7] = 0.0
            model.rnn.weight_hh_l0[:, 3:7] = 0.0
            model.head.weight[:, 3:7] = 0.0
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        words = torch.randint(0, 11, (4, 8))
        method = iss(Lasso(0.01), compact)
        budget = Budget(params="100%")
        grower = Grower(model, optimizer, budget=budget, epochs=5, method=method, space=traced("lstm"))
        losses[compact] = torch.zeros(15)
        for step in range(15):
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(model(words).flatten(0, 1), words.roll(-1, 1).flatten())
            value.backward()
            optimizer.step()
            losses[compact][step] = value.item()
            if step % 3 == 2:
                grower.step()
        hidden = [record["widths"]["rnn"] for record in grower.records]
        assert hidden == ([24, 20, 20, 20, 20] if compact else [24, 24, 24, 20, 20])
    assert_near(losses[True], losses[False], 1e-7, "losses")


def test_blocks_are_not_judged_but_count_for_the_budget(space_of: SpaceOf) -> None:
    growth = Growth("deep_residual", space_of("deep_residual"), iss(), epochs=4, budget=Budget(params="20%")).go()
    assert growth.grower.records[0]["widths"] == growth.grower.space.full
    assert growth.grower.records[-1]["params_frac"] <= 0.2
    assert all(growth.grower.widths[group] for group in growth.grower.space.blocks), "units go first"


# --- the same run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("resnet", "adamw"), ("lstm_lm", "sgd")])
def test_law_6_a_resumed_run_is_the_uninterrupted_one(name: str, kind: str, space_of: SpaceOf, tmp_path: Path) -> None:
    def made(method: Method | None = None) -> Growth:
        return Growth(name, space_of(name), method or iss(STRONG), kind=kind, epochs=5)

    torch.manual_seed(1)
    growth = made()
    for point in (1, 4, 9):
        growth.go(point).save(tmp_path / str(point))
    expected = everything(growth.go())
    torch.manual_seed(1)
    assert_same(everything(made().go()), expected)
    for point in (1, 4, 9):
        assert_same(everything(made().resume(tmp_path / str(point)).go()), expected)
    with pytest.raises(FileError, match="saved by another run: its method"):
        made(iss(Lasso(0.4))).resume(tmp_path / "4")


def test_a_method_without_a_lasso_is_told_as_before() -> None:
    """Checkpoints hold the text of the method: those of runs without a lasso must go on fitting."""
    assert "lasso" not in repr(Method())


def test_digits(tmp_path: Path) -> None:
    """On real data, the published strength: what comes out is within the budget and has learned the task."""
    assert main(["grow", "digits", "--method", "iss", "--epochs", "3", "--out", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["method"] == "iss"
    assert result["params_frac"] <= 0.36
    assert result["test"]["accuracy"] > 0.7


# --- what it is told ----------------------------------------------------------------------------------------------


def test_what_it_refuses() -> None:
    with pytest.raises(MeristemError, match=r"the strength of a lasso must be a number of at least 0, got -1"):
        Lasso(strength=-1)
    model, inputs = build("mlp", torch.float32)
    optimizer, budget = optim.SGD(model.parameters(), lr=0.1), Budget(params="50%", spend="50%")
    with pytest.raises(BudgetError, match="a spend budget needs a controller that follows a plan"):
        Grower(model, optimizer, inputs, budget=budget, epochs=4, method=iss())


def test_the_network_that_comes_out_is_plain(space_of: SpaceOf) -> None:
    growth = Growth("lstm_lm", space_of("lstm_lm"), iss(STRONG)).go()
    small = growth.grower.export()
    assert not growth.optimizer._optimizer_step_pre_hooks
    assert not growth.optimizer._optimizer_step_post_hooks
    growth.model.eval()
    small.eval()
    for now, then in zip(run(small, growth.inputs), run(growth.model, growth.inputs), strict=True):
        assert torch.equal(now, then)


def test_where_too_few_units_are_left_alive_the_largest_stay() -> None:
    """A group may need several (the hidden cells of a projected LSTM)."""
    norms, live = np.array([0.0, 3.0, 0.0, 0.0, 9.0]), np.array([True, True, True, True, False])
    assert alive_units(norms, live, min_units=0).tolist() == [False, True, False, False, False]
    assert alive_units(norms, live, min_units=3).tolist() == [True, True, True, False, False]
    assert alive_units(np.zeros(5), live, min_units=1).tolist() == [True, False, False, False, False]
