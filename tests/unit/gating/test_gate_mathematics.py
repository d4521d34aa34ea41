"""Gates as mathematics: values against their definitions, slopes against autograd, draws against their marginals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.control.draws import Draw, Even, Independent, Ranked, logit, sigmoid
from meristem.control.penalty import MeanPerGroup, PlainSum, SumOverMeanWidth
from meristem.control.temperature import Decayed, Global, PerUnit
from meristem.gating.kinds import Concrete, Open, Sigmoid

chances = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=40).map(np.array)


@settings(max_examples=80)
@given(st.floats(-30, 30))
def test_logit_undoes_sigmoid(x: float) -> None:
    """Up to where sigmoid rounds to 1: there a difference of one bit is many units of score."""
    p = sigmoid(np.array([x]))
    assert 0 < p[0] < 1 or x > 27
    assert logit(p)[0] == pytest.approx(x, rel=1e-2, abs=1e-2) or abs(x) > 27
    assert sigmoid(np.array([-x]))[0] == pytest.approx(1 - p[0], abs=1e-15)


def test_extremes_are_finite() -> None:
    with np.errstate(all="raise", under="ignore"):
        assert sigmoid(np.array([-1e300, 1e300])).tolist() == [0.0, 1.0]
        assert np.isfinite(logit(np.array([0.0, 1.0]))).all()
        assert logit(0.5) == 0.0


# --- values and slopes --------------------------------------------------------------------------------------------


def parts(seed: int = 0, n: int = 20) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    maker = torch.Generator().manual_seed(seed)
    score = 3 * torch.randn(n, generator=maker, dtype=torch.float64)
    beta = 1 + 9 * torch.rand(n, generator=maker, dtype=torch.float64)
    return score, beta, torch.rand(n, generator=maker, dtype=torch.float64)


def test_sigmoid_gate() -> None:
    score, beta, noise = parts()
    torch.testing.assert_close(Sigmoid().value(score, beta, noise), 1 / (1 + torch.exp(-beta * score)))


def test_concrete_gate() -> None:
    """sigma((s + logit u) / tau) with tau = 1 / beta: open with probability sigma(s) as tau falls to 0."""
    score, beta, noise = parts()
    expected = torch.sigmoid((score + torch.log(noise) - torch.log1p(-noise)) * beta)
    torch.testing.assert_close(Concrete().value(score, beta, noise), expected)
    uniform = torch.rand(200_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for value in (-1.0, 0.0, 2.0):
        gates = Concrete().value(torch.full_like(uniform, value), torch.full_like(uniform, 1e6), uniform)
        assert float(gates.mean()) == pytest.approx(float(torch.sigmoid(torch.tensor(value))), abs=5e-3)


def test_concrete_gate_at_the_ends_of_the_noise() -> None:
    """The generator may give 0 exactly; the gate must stay a number."""
    score, beta, noise = torch.zeros(2), torch.full((2,), 100.0), torch.tensor([0.0, 1.0])
    assert Concrete().value(score, beta, noise).isfinite().all()
    assert Concrete().slope(score, beta, noise).isfinite().all()


@pytest.mark.parametrize("gate", [Sigmoid(), Concrete()], ids=["Sigmoid", "Concrete"])
def test_slope_is_the_derivative(gate: Sigmoid | Concrete) -> None:
    score, beta, noise = parts()
    score.requires_grad_()
    gate.value(score, beta, noise).sum().backward()
    torch.testing.assert_close(gate.slope(score.detach(), beta, noise), score.grad)


def test_open_gate_is_one_with_the_slope_of_sigma() -> None:
    score, beta, noise = parts()
    assert torch.equal(Open().value(score, beta, noise), torch.ones_like(score))
    assert torch.equal(Open().slope(score, beta, noise), Sigmoid().slope(score, beta, noise))


def test_flags_say_what_values_do() -> None:
    score, beta, noise = parts()
    for gate in (Sigmoid(), Concrete(), Open()):
        assert gate.scales == bool((gate.value(score, beta, noise) != 1).any())
        assert gate.noisy == (not torch.equal(gate.value(score, beta, noise), gate.value(score, beta, 1 - noise)))


# --- temperature --------------------------------------------------------------------------------------------------


def test_per_unit_counts_its_own_epochs() -> None:
    """From start at no epoch to start * final at all of them, geometrically; the run's own epoch does not matter."""
    drawn = np.array([0.0, 5.0, 10.0])
    for epoch in (0, 3, 10):
        beta = PerUnit(start=2.0, final=100.0).beta(drawn, epoch, 10, 0.3)
        assert beta == pytest.approx([2.0, 20.0, 200.0])


def test_shared_counts_the_epochs_of_the_run() -> None:
    drawn = np.array([0.0, 5.0, 10.0])
    assert Global(start=2.0, final=100.0).beta(drawn, 5, 10, 0.3) == pytest.approx([20.0] * 3)


def test_decayed_follows_the_learning_rate() -> None:
    """With a constant rate it is the per-unit rule; with none nothing stiffens; between, between."""
    drawn = np.array([0.0, 5.0, 10.0])
    constant = Decayed().beta(drawn, 10, 10, 1.0)
    assert constant == pytest.approx(PerUnit().beta(drawn, 10, 10, 1.0))
    assert Decayed().beta(drawn, 10, 10, 0.0) == pytest.approx([1.0] * 3)
    half = Decayed().beta(drawn, 10, 10, 0.5)
    assert (half[1:] > 1).all()
    assert (half[1:] < constant[1:]).all()


# --- draws --------------------------------------------------------------------------------------------------------


def often(draw: Draw, p: np.ndarray, times: int = 4000) -> np.ndarray:
    """The draws, one row each."""
    rng, live = np.random.default_rng(0), np.zeros(len(p), dtype=bool)
    return np.stack([draw(p, live, rng) for _ in range(times)])


@pytest.mark.parametrize("draw", [Independent(), Even()], ids=["Independent", "Even"])
def test_marginals(draw: Draw) -> None:
    """Each unit lives with its own probability, certain ones always and impossible ones never."""
    p = np.array([0.0, 0.05, 0.2, 0.5, 0.5, 0.9, 1.0, 0.33])
    drawn = often(draw, p)
    assert drawn.dtype == np.bool_
    assert drawn.mean(0) == pytest.approx(p, abs=4 * 0.5 / np.sqrt(len(drawn)))
    assert not drawn[:, 0].any()
    assert drawn[:, 6].all()


@settings(max_examples=80)
@given(p=chances, seed=st.integers(0, 10_000))
def test_even_has_a_nearly_fixed_count(p: np.ndarray, seed: int) -> None:
    """The count is the sum of the probabilities, rounded down or up."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        count = Even()(p, np.zeros(len(p), dtype=bool), rng).sum()
        assert p.sum() - 1 - 1e-9 < count < p.sum() + 1 + 1e-9


def test_even_does_not_tie_neighbours() -> None:
    """The order is drawn anew: two units of probability one half are together about as often as not."""
    drawn = often(Even(), np.full(10, 0.5))
    together = (drawn[:, 0] & drawn[:, 1]).mean()
    assert 0.1 < together < 0.35


def test_independent_counts_vary_where_even_ones_do_not() -> None:
    p = np.full(10, 0.3)
    assert often(Independent(), p).sum(1).std() > 1
    assert often(Even(), p).sum(1).std() < 1e-9


def test_ranked() -> None:
    p = np.array([0.49, 0.5, 0.51, 0.0, 1.0])
    assert often(Ranked(), p, 3).all(0).tolist() == [False, True, True, False, True]


@pytest.mark.parametrize("draw", [Independent(), Even(), Ranked()], ids=["Independent", "Even", "Ranked"])
def test_draws_repeat_and_do_not_mutate(draw: Draw) -> None:
    p, live = np.random.default_rng(1).random(30), np.zeros(30, dtype=bool)
    before = p.copy()
    one, two = (draw(p, live, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one, two)
    assert np.array_equal(p, before)
    assert not live.any()


# --- penalties ----------------------------------------------------------------------------------------------------


def test_penalties() -> None:
    """What the penalty of a fully open network is: each definition, for groups of 10 and 30."""
    units = {"a": 10, "b": 30}

    def total(weight: dict[str, float]) -> float:
        return sum(weight[name] * count for name, count in units.items())

    assert total(PlainSum().weight(units)) == 40
    assert total(MeanPerGroup().weight(units)) == pytest.approx(2)
    assert total(SumOverMeanWidth().weight(units)) == pytest.approx(40 / 20)
    assert len(set(SumOverMeanWidth().weight(units).values())) == 1
    assert MeanPerGroup().weight(units)["a"] == pytest.approx(3 * MeanPerGroup().weight(units)["b"])
