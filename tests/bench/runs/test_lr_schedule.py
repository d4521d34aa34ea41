"""Learning rates: what a run multiplies its own by, as text and as numbers."""

from __future__ import annotations

import pytest

from meristem.errors import MeristemError
from meristem_bench.runs.lr_schedule import (
    Constant,
    Cosine,
    Decay,
    Held,
    LrSchedule,
    Polynomial,
    Steps,
    factor_with_warmup,
    parse_lr_schedule,
)


@pytest.mark.parametrize(
    "rate",
    [Cosine(), Constant(), Polynomial(0.9), Steps(10, (0.5, 0.75)), Steps(5, (0.3,)), Decay(1.15, 14, 55), Held(0.7)],
)
def test_text_and_back(rate: LrSchedule) -> None:
    assert parse_lr_schedule(str(rate)) == rate


def test_a_third_of_a_run_is_not_rounded_on_its_way_through_text() -> None:
    """A run that is resumed reads its rate from text and must divide it at the same step."""
    rate = Steps(10, (1 / 3, 2 / 3))
    assert parse_lr_schedule(str(rate)) == rate
    assert parse_lr_schedule(str(rate)).factor(60 / 90) == rate.factor(60 / 90) == pytest.approx(0.01)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cos",
        "cosine/2",
        "steps",
        "steps/10",
        "steps/0@0.5",
        "steps/10@0.5,2",
        "polynomial",
        "polynomial^x",
        "held@1",
        "held",
    ],
)
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(MeristemError, match=r"a learning rate cannot follow .*; write cosine"):
        parse_lr_schedule(text)


def test_the_paper_divides_at_epochs_80_and_120_of_160() -> None:
    rate = Steps(10, (0.5, 0.75))
    factors = [rate.factor(epoch / 160) for epoch in (0, 79, 80, 119, 120, 159)]
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_the_ends() -> None:
    for rate in (Cosine(), Polynomial(0.9), Held(0.7)):
        assert rate.factor(0) == 1
        assert rate.factor(1) == 0


def test_a_warm_up_rises_evenly_and_then_leaves_the_rate_alone() -> None:
    assert [factor_with_warmup(Constant(), step, 100, 4) for step in range(6)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1, 1]
    )
    assert factor_with_warmup(Cosine(), 50, 100, 4) == Cosine().factor(0.5)
    assert factor_with_warmup(Cosine(), 0, 100, 0) == 1


@pytest.mark.parametrize(("divisor", "after", "epochs"), [(2, 4, 13), (1.2, 6, 39), (1.15, 14, 55)])
def test_a_decay_starts_after_so_many_epochs_and_goes_on_at_every_one(divisor: float, after: int, epochs: int) -> None:
    """The schedules of Zaremba et al., at the first and the last step of every epoch."""
    rate, steps = Decay(divisor, after, epochs), 1327
    for epoch in range(epochs):
        for step in (0, steps - 1):
            factor = rate.factor((epoch * steps + step) / (epochs * steps))
            assert factor == divisor ** -max(0, epoch + 1 - after), (epoch, step)


@pytest.mark.parametrize(
    "text", ["decay/2", "decay/2@4", "decay/0@4/13", "decay/2@13/13", "decay/2@0/13", "decay^2@4/13"]
)
def test_a_decay_that_is_none(text: str) -> None:
    with pytest.raises(MeristemError, match=r"a learning rate cannot follow .* decay/2@4/13"):
        parse_lr_schedule(text)
