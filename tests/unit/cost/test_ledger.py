"""The ledger, added up by hand."""

from __future__ import annotations

import dataclasses
import json

import pytest

from meristem.cost.ledger import FINE_TUNE, GROW, SEARCH, Ledger


def test_nothing_yet() -> None:
    ledger = Ledger(1000.0)
    assert (ledger.spent, ledger.dense_spent, ledger.steps) == (0, 0, 0)
    assert ledger.spend_frac == ledger.total_frac == 0.0
    assert ledger.by_stage == {}


def test_a_step_is_three_forward_passes() -> None:
    """10 steps at a tenth of the cost, then 30 at half of it, against 40 dense ones."""
    first = Ledger(1000.0).after_training(10, 0.1)
    assert first.spent == pytest.approx(3 * 10 * 100)
    ledger = first.after_training(30, 0.5)
    assert ledger.steps == 40
    assert ledger.spent == pytest.approx(3 * (10 * 100 + 30 * 500))
    assert ledger.dense_spent == pytest.approx(3 * 40 * 1000)
    assert ledger.spend_frac == pytest.approx((10 * 0.1 + 30 * 0.5) / 40)


def test_the_dense_run_spends_one() -> None:
    ledger = Ledger(7.0)
    for _ in range(3):
        ledger = ledger.after_training(5, 1.0)
    assert ledger.spend_frac == pytest.approx(1.0)


def test_deciding_costs_one_forward_pass_and_the_dense_run_needs_none() -> None:
    ledger = Ledger(1000.0).after_training(10, 1.0).after_evaluating(3, 0.5)
    assert ledger.spent == pytest.approx(3 * 10 * 1000 + 3 * 500)
    assert ledger.spend_frac == pytest.approx(1.05)
    assert ledger.steps == 10


def test_the_total_counts_other_runs() -> None:
    ledger = Ledger(1000.0).after_training(10, 0.5).with_other_runs(3 * 10 * 1000)
    assert ledger.spend_frac == pytest.approx(0.5)
    assert ledger.total_frac == pytest.approx(1.5)
    assert ledger.after_training(10, 0.5).other_spent == 3 * 10 * 1000


def test_stages_add_up_to_the_whole() -> None:
    """Stages may take turns, and any name is a stage."""
    ledger = Ledger(1000.0)
    for steps, share, stage in [(10, 0.1, "warm-up"), (5, 0.5, GROW), (2, 0.25, FINE_TUNE), (5, 0.75, GROW)]:
        ledger = ledger.after_training(steps, share, stage)
    ledger = ledger.after_evaluating(4, 0.5)
    expected = {"warm-up": 3 * 10 * 100, GROW: 3 * 5 * (500 + 750), FINE_TUNE: 3 * 2 * 250, SEARCH: 4 * 500}
    assert ledger.by_stage == pytest.approx(expected)
    assert sum(ledger.by_stage.values()) == pytest.approx(ledger.spent)


def test_a_ledger_is_a_value() -> None:
    """What training adds goes to a new one, so that a refused step leaves nothing to undo."""
    before = Ledger(1000.0).after_training(1, 1.0)
    kept = dataclasses.asdict(before)
    before.after_training(1, 1.0, FINE_TUNE).after_evaluating(1, 1.0).with_other_runs(5.0)
    assert dataclasses.asdict(before) == kept
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.spent = 0.0  # type: ignore[misc]


def test_it_comes_back_from_plain_data() -> None:
    ledger = Ledger(1000.0).after_training(10, 0.1).after_training(10, 0.2, FINE_TUNE).with_other_runs(1.0)
    assert Ledger(**json.loads(json.dumps(dataclasses.asdict(ledger)))) == ledger


def test_the_record() -> None:
    ledger = Ledger(1000.0).after_training(10, 0.5).with_other_runs(30_000.0)
    assert ledger.record == {
        "spend_macs": 15_000.0,
        "dense_spend_macs": 30_000.0,
        "spend_frac": 0.5,
        "total_spend_frac": 1.5,
        "spend_by_stage": {"grow": 15_000.0},
    }
