"""Laws 6 and 9 in fine-tuning: after growing, the network that was found is trained on.

Why: nothing may be decided any more, so the budget is met where growing ends, the structure stays, and no gate is left
in the model. All else is as before: every step is counted, and a run that was stopped, in the middle of it or where it
begins, goes on bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from growing import Growth, assert_same, everything, spoil
from helpers import assert_all_near, masks_equal, run
from meristem import Budget
from meristem.errors import MeristemError

EPOCHS, TUNED, STEPS = 4, 2, 2
BORDER = EPOCHS * STEPS


def growth(name: str, space_of: Any, preset: str, **more: Any) -> Growth:
    return Growth(name, space_of(name), preset, epochs=EPOCHS, steps=STEPS, fine_tune=TUNED, **more)


@pytest.mark.parametrize(
    ("name", "preset"), [("deep_residual", "default:peak=1.2"), ("deep_residual", "paper"), ("lstm_lm", "gates")]
)
def test_resumed_run_is_the_uninterrupted_run(name: str, preset: str, space_of, tmp_path: Path) -> None:
    """Before the border, at it, in the middle of fine-tuning and at the end; also back from there to growing."""
    torch.manual_seed(1)
    whole, then = growth(name, space_of, preset), {}
    for point in (BORDER - 1, BORDER, BORDER + 1, BORDER + 4):
        whole.go(point).save(tmp_path / str(point))
        then[point] = everything(whole)
    for point, expected in then.items():
        torch.manual_seed(1000 + point)
        again = growth(name, space_of, preset)
        spoil(again.model)
        again.resume(tmp_path / str(point))
        assert_same(everything(again), expected)
        assert_same(everything(again.go()), then[BORDER + 4])
    back = whole.resume(tmp_path / str(BORDER - 1))
    assert_same(everything(back.go()), then[BORDER + 4])


@pytest.mark.parametrize("preset", ["default:peak=1.2", "gates:peak=1.2", "paper"])
def test_the_budget_is_met_where_growing_ends_and_then_nothing_changes(preset: str, space_of) -> None:
    torch.manual_seed(1)
    tuned = growth("deep_residual", space_of, preset).go(BORDER)
    found, masks = tuned.grower.records[-1], tuned.grower.live.masks
    assert found["params_frac"] <= 0.5
    if tuned.grower.method.controller.follows_plan:
        assert found["params_frac"] > 0.45
    assert [record["fine_tuning"] for record in tuned.grower.records] == [False] * EPOCHS
    tuned.go()
    last = tuned.grower.records[-1]
    assert masks_equal(tuned.grower.live.masks, masks)
    assert (last["params"], last["blocks"]) == (found["params"], found["blocks"])
    assert [record["fine_tuning"] for record in tuned.grower.records] == [False] * EPOCHS + [True] * TUNED
    assert [record["epoch"] for record in tuned.grower.records] == list(range(1, EPOCHS + TUNED + 1))
    assert last["scores"] == tuned.grower.records[EPOCHS]["scores"], "nobody learns about units any more"
    with pytest.raises(MeristemError, match=r"more than 6 times, .* made for epochs=4 and fine_tune=2; call it once"):
        tuned.grower.step()


def test_growing_is_what_it_is_without(space_of) -> None:
    """The schedule, the freeze and the gates' learning rate do not know what comes after."""
    runs = []
    for more in ({}, {"fine_tune": TUNED}):
        torch.manual_seed(1)
        one = Growth("deep_residual", space_of("deep_residual"), "default", epochs=EPOCHS, steps=STEPS, **more)
        runs.append(everything(one.go(BORDER)))
    assert_same(*runs, leave=("records",))


@pytest.mark.parametrize(("name", "preset"), [("resnet", "paper"), ("lstm_lm", "paper"), ("resnet", "gates")])
def test_gates_are_folded_and_gone(name: str, preset: str, space_of) -> None:
    """Where growing ends the function stays, and the model has no hooks."""
    torch.manual_seed(1)
    one = growth(name, space_of, preset).go(BORDER - 1)
    one.optimizer.zero_grad()
    run(one.model, one.inputs)[0].sum().backward()
    one.optimizer.step()
    with torch.no_grad():
        expected = run(one.grower.export().eval(), one.inputs)
        one.grower.step()
        assert_all_near(run(one.model.eval(), one.inputs), expected, 1e-4)
        assert_all_near(run(one.grower.export().eval(), one.inputs), expected, 1e-4)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in one.model.modules())


def test_blocks_are_open_from_then_on(space_of) -> None:
    """The gate of a block cannot be folded; while it is fine-tuned, the network learns to do without it."""
    torch.manual_seed(1)
    one = growth("deep_residual", space_of, "paper").go(BORDER)
    assert not any(m._forward_hooks for m in one.model.modules())
    one.go()
    with torch.no_grad():
        assert_all_near(run(one.grower.export().eval(), one.inputs), run(one.model.eval(), one.inputs), 0.0)


def test_all_steps_are_counted_and_planned(space_of) -> None:
    one = growth("resnet", space_of, "default", budget=Budget(macs="40%"))
    planned = one.grower.expected_spend_frac
    ledger = one.go().grower.ledger
    assert ledger.steps == (EPOCHS + TUNED) * STEPS
    assert ledger.spend_frac <= planned
    macs = [record["macs_frac"] for record in one.grower.records]
    assert ledger.spend_frac == pytest.approx(sum(macs) / len(macs))
    short = Growth("resnet", space_of("resnet"), "default", epochs=EPOCHS, budget=Budget(macs="40%")).grower
    assert planned * 6 == pytest.approx(short.expected_spend_frac * 4 + 2 * 0.4)
    by_params = growth("resnet", space_of, "default").grower
    assert 0 < by_params.expected_spend_frac < 1


def test_a_spend_budget_covers_it(space_of) -> None:
    """What fine-tuning costs is taken from growing; where that cannot be, it is refused before the run."""
    budget = Budget(params="100%", macs="50%", spend=0.42)
    one = growth("resnet", space_of, "default", budget=budget).go()
    assert one.grower.ledger.spend_frac <= 0.42
    with pytest.raises(MeristemError, match=r"a spend of 42\.0% of the dense run cannot be kept"):
        Growth("resnet", space_of("resnet"), epochs=EPOCHS, fine_tune=40, budget=budget)


def test_what_cannot_be_meant(space_of) -> None:
    for wrong in (-1, 1.5, True):
        with pytest.raises(MeristemError, match="fine_tune must be a whole number of at least 0"):
            Growth("mlp", space_of("mlp"), fine_tune=wrong)
