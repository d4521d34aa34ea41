"""The ledger, added up by hand."""

from __future__ import annotations

import pytest

from meristem.cost.ledger import Ledger


def test_nothing_yet() -> None:
    ledger = Ledger(1000.0)
    assert (ledger.spent, ledger.dense_spent, ledger.steps) == (0, 0, 0)
    assert ledger.spend_frac == ledger.total_frac == 0.0


def test_a_step_is_three_forward_passes() -> None:
    """10 steps at a tenth of the cost, then 30 at half of it, against 40 dense ones."""
    ledger = Ledger(1000.0)
    ledger.train(10, 0.1)
    assert ledger.spent == pytest.approx(3 * 10 * 100)
    ledger.train(30, 0.5)
    assert ledger.steps == 40
    assert ledger.spent == pytest.approx(3 * (10 * 100 + 30 * 500))
    assert ledger.dense_spent == pytest.approx(3 * 40 * 1000)
    assert ledger.spend_frac == pytest.approx((10 * 0.1 + 30 * 0.5) / 40)


def test_the_dense_run_spends_one() -> None:
    ledger = Ledger(7.0)
    for _ in range(3):
        ledger.train(5, 1.0)
    assert ledger.spend_frac == pytest.approx(1.0)


def test_deciding_costs_one_forward_pass_and_the_dense_run_needs_none() -> None:
    ledger = Ledger(1000.0)
    ledger.train(10, 1.0)
    ledger.evaluate(3, 0.5)
    assert ledger.spent == pytest.approx(3 * 10 * 1000 + 3 * 500)
    assert ledger.spend_frac == pytest.approx(1.05)
    assert ledger.steps == 10


def test_the_total_counts_every_stage() -> None:
    ledger = Ledger(1000.0)
    ledger.train(10, 0.5)
    ledger.other_spent += 3 * 10 * 1000
    assert ledger.spend_frac == pytest.approx(0.5)
    assert ledger.total_frac == pytest.approx(1.5)
