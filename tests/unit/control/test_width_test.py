"""Widths by tests on held-out data: which groups become wider, what that costs, and that a run resumes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from growing import Growth, assert_same, everything
from helpers import build, loss, run
from meristem import Budget, methods
from meristem.control.width_test import NoiseTest
from meristem.errors import MeristemError

NET = "resnet"


def held_out_loss(model: nn.Module) -> torch.Tensor:
    _, inputs = build(NET, torch.float32)
    return loss(run(model, inputs)).detach()


def grown(space: Any, method: Any = "noise-test", epochs: int = 8, **more: Any) -> Growth:
    return Growth(
        NET,
        space,
        method,
        epochs=epochs,
        budget=Budget(params="40%"),
        held_out_loss=held_out_loss,
        batch_size=4,
        **more,
    )


def test_equal_slices_of_the_budget() -> None:
    """A group that costs four times as much gets noise that stands for a fourth of the share."""
    spreads = NoiseTest(slice_share=0.2).spreads({"cheap": 10, "dear": 10}, {"cheap": 1.0, "dear": 4.0})
    shares = {name: spread**2 / (1 + spread**2) for name, spread in spreads.items()}  # of units dropped
    assert shares["cheap"] == pytest.approx(0.5)
    assert shares["dear"] == pytest.approx(0.125)
    assert shares["cheap"] * 10 * 1.0 == pytest.approx(shares["dear"] * 10 * 4.0)


def test_no_step_is_larger_than_the_largest() -> None:
    wider = NoiseTest(largest_step=1.5).wider({"a": 10, "b": 10, "c": 10}, {"a": 1e3, "b": 20.0, "c": -1.0})
    assert wider["a"] == pytest.approx(15)
    assert wider["c"] == pytest.approx(10 / 1.5)
    assert wider["a"] > wider["b"] > wider["c"]


def test_minded_groups_become_wider_and_the_budget_holds(space_of, monkeypatch) -> None:
    """With the first group minded most, it ends wider than under the default, and the others narrower."""
    space = space_of(NET)
    first = next(iter(space.groups))
    from meristem.gating.held_out import HeldOut

    monkeypatch.setattr(
        HeldOut, "rises", lambda self, spreads, draws, rng: {name: 1.0 + 9 * (name == first) for name in spreads}
    )
    plain, tested = Growth(NET, space, "default", epochs=8, budget=Budget(params="40%")).go(), grown(space).go()
    assert tested.grower.widths[first] > plain.grower.widths[first]
    assert tested.grower.records[-1]["params_frac"] <= 0.4


def test_what_tests_cost_is_on_the_ledger(space_of) -> None:
    """Each of them runs the model once undisturbed and ``draws`` times for every group."""
    space = space_of(NET)
    growth = grown(space, "noise-test:tests=2:draws=3").go()
    samples = len(build(NET, torch.float32)[1][0])
    forward_passes = sum(
        (1 + 3 * len(space.groups)) * samples / 4 * each["macs_frac"]
        for each in growth.grower.records
        if each["epoch"] in (2, 3)
    )
    ledger = growth.grower.ledger
    assert ledger.by_stage["search"] == pytest.approx(forward_passes * ledger.dense_macs)


def test_a_run_resumes_between_two_tests(space_of, tmp_path) -> None:
    space = space_of(NET)
    whole = grown(space).go(until=5)
    whole.save(tmp_path / "a")
    whole.go()
    again = grown(space).resume(tmp_path / "a").go()
    assert_same(everything(again), everything(whole), leave=("path",))


def test_without_held_out_data_it_says_what_is_missing(space_of) -> None:
    with pytest.raises(MeristemError, match="give held_out_loss="):
        Growth(NET, space_of(NET), "noise-test")
    with pytest.raises(MeristemError, match="held_out_loss must be a function of a model"):
        Growth(NET, space_of(NET), "default", held_out_loss=3.0)


@pytest.mark.parametrize("numbers", [{"tests": 0}, {"until": 0.0}, {"rate": -1.0}, {"largest_step": 1.0}])
def test_numbers_that_mean_nothing_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(MeristemError):
        NoiseTest(**numbers)


def test_its_settings_are_read_from_text() -> None:
    assert methods.parse_method("noise-test:tests=2:until=0.3").width_test == NoiseTest(tests=2, until=0.3)
    assert isinstance(methods.noise_test().width_test, NoiseTest)
