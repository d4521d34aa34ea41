"""Controllers: the exact one stands on the plan, the paper's pulls towards the budget; neither touches what it sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import meristem
from growing import PRESETS
from meristem import Budget, methods
from meristem.control.controller import Controller, View
from meristem.control.decider import Decider
from meristem.control.draws import Even, Independent, sigmoid
from meristem.control.exact import Exact, solve_push
from meristem.control.feedback import Feedback
from meristem.control.fit_budget import fit
from meristem.control.fixed_probability import FixedProbability
from meristem.control.order import ImportancePerPrice
from meristem.cost.price import Prices
from meristem.gating.kinds import Concrete
from meristem.space.arrays import FloatArray
from meristem_bench.models import resnet20


@cache
def prices() -> Prices:
    net = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 60), nn.ReLU(), nn.Linear(60, 4))
    return Prices(meristem.trace(net, torch.ones(1, 4)))


def view(seed: int = 0, live: float = 0.5, **settings: Any) -> View:
    """Random scores, temperatures and live units."""
    rng = np.random.default_rng(seed)
    full = prices().space.full
    masks = {name: rng.random(units) < live for name, units in full.items()}
    for mask in masks.values():
        mask[0] = True
    limits = settings.pop("limits", {"params": 0.3})
    return View(
        scores={name: rng.normal(size=units) for name, units in full.items()},
        beta={name: rng.uniform(1, 5, units) for name, units in full.items()},
        live=masks,
        lived=masks,
        limits=limits,
        caps=settings.pop("caps", limits),
        last=settings.pop("last", False),
        prices=prices(),
        **settings,
    )


def expected_widths(scores: Mapping[str, FloatArray], betas: Mapping[str, FloatArray], push: float) -> dict[str, float]:
    return {name: float(sigmoid(betas[name] * (values + push)).sum()) for name, values in scores.items()}


def widths(live: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(mask.sum()) for name, mask in live.items()}


# --- the push -----------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), params=st.floats(0.05, 0.95), macs=st.floats(0.05, 0.95))
def test_push_puts_the_expected_cost_on_the_limit(seed: int, params: float, macs: float) -> None:
    """The cost of the expected widths is the limit of the tighter metric, to many digits, and below the other."""
    seen = view(seed)
    for limits in ({"params": params}, {"macs": macs}, {"params": params, "macs": macs}):
        push = solve_push(prices(), seen.scores, seen.beta, limits)
        cost = prices().shares(expected_widths(seen.scores, seen.beta, push))
        over = [cost[name] / limit for name, limit in limits.items()]
        assert max(over) == pytest.approx(1.0, abs=1e-6)


def test_push_of_a_limit_on_the_plan_is_nothing() -> None:
    """Scores that already have the planned cost are left where they are; shifted ones are shifted back."""
    seen = view()
    limits = {"params": prices().share("params", expected_widths(seen.scores, seen.beta, 0.0))}
    assert solve_push(prices(), seen.scores, seen.beta, limits) == pytest.approx(0.0, abs=1e-6)
    shifted = {name: values + 5.0 for name, values in seen.scores.items()}
    assert solve_push(prices(), shifted, seen.beta, limits) == pytest.approx(-5.0, abs=1e-6)


def test_push_at_the_ends() -> None:
    """Nothing fits: as low as it goes. Everything fits: so high that everything is expected to live."""
    seen = view()
    low = solve_push(prices(), seen.scores, seen.beta, {"params": 0.0})
    assert max(expected_widths(seen.scores, seen.beta, low).values()) < 1e-6
    high = solve_push(prices(), seen.scores, seen.beta, {"params": 1.0})
    assert expected_widths(seen.scores, seen.beta, high) == pytest.approx(prices().space.full, rel=1e-6)


@pytest.mark.parametrize("epochs_at_the_top", [1, 2, 5])
def test_a_plan_that_touches_the_dense_cost_can_come_down_again(epochs_at_the_top: int) -> None:
    """The push is added to the scores. After epochs in which everything fitted, the next limit is met as if nothing
    had been: the expected cost is on it, so that the scores still decide who stays."""
    seen = view()
    scores = dict(seen.scores)
    for _ in range(epochs_at_the_top):
        push = solve_push(prices(), scores, seen.beta, {"params": 1.0})
        scores = {name: values + push for name, values in scores.items()}
    push = solve_push(prices(), scores, seen.beta, {"params": 0.3})
    assert prices().share("params", expected_widths(scores, seen.beta, push)) == pytest.approx(0.3, abs=1e-3)


# --- exact --------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), params=st.floats(0.0, 1.0), macs=st.floats(0.0, 1.0))
def test_exact_stands_at_or_just_under_the_plan(seed: int, params: float, macs: float) -> None:
    """Whatever proposes: not above a limit (unless the smallest network is), no group empty, no unit left that fits."""
    limits = {"params": max(params, prices().smallest["params"]), "macs": max(macs, prices().smallest["macs"])}
    seen = view(seed, limits=limits)
    default = methods.METHODS["default"]().controller
    for controller in (Exact(), Exact(draw=Even()), Exact(draw=Independent()), default):
        found = widths(controller.decide(seen, np.random.default_rng(seed)).live)
        assert min(found.values()) >= 1
        assert prices().fits(found, limits)
        for name, units in prices().space.full.items():
            if found[name] < units:
                assert not prices().fits({**found, name: found[name] + 1}, limits), (controller, name)


def test_exact_by_rank_is_the_best_by_score() -> None:
    """With ranked draws no temperature and no random number matters: units come in order of score."""
    seen = view()
    decision = Exact().decide(seen, np.random.default_rng(0))
    best = fit(prices(), seen.scores, seen.limits)
    assert all(np.array_equal(decision.live[name], best[name]) for name in best)


def test_exact_takes_first_what_was_drawn() -> None:
    """Units that the draw proposes and units it does not are never exchanged within a group."""
    seen = view(3)
    push = solve_push(prices(), seen.scores, seen.beta, seen.limits)
    rng = np.random.default_rng(9)
    decision = Exact(draw=Even()).decide(seen, np.random.default_rng(9))
    assert decision.push == push
    for name, scores in seen.scores.items():
        drawn = Even()(sigmoid(seen.beta[name] * (scores + push)), seen.live[name], rng)
        live = decision.live[name]
        assert not (live & ~drawn).any() or not (drawn & ~live).any(), name


def test_exact_draws_differ_by_generator_only() -> None:
    seen = view()
    one, same, other = (Exact(draw=Even()).decide(seen, np.random.default_rng(seed)).live for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert any(not np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("draw", [None, Even()], ids=["ranked", "even"])
def test_exact_aligned(draw: Any) -> None:
    controller = replace(Exact(), align=8, **({} if draw is None else {"draw": draw}))
    for name, width in widths(controller.decide(view(), np.random.default_rng(0)).live).items():
        assert width % 8 == 0 or width == prices().space.full[name]


# --- feedback -----------------------------------------------------------------------------------------------------


def test_feedback_pulls_towards_the_budget() -> None:
    """lambda = base * (cost - budget): positive, a force against gates, when too large; negative when too small."""
    for score, sign in ((4.0, 1), (-4.0, -1)):
        seen = view(caps={"params": 0.5})
        seen = replace(seen, scores={name: np.full(len(values), score) for name, values in seen.scores.items()})
        decision = Feedback(base=0.5).decide(seen, np.random.default_rng(0))
        cost = prices().share("params", widths(decision.live))
        assert np.sign(cost - 0.5) == sign
        assert decision.strength == pytest.approx(0.5 * (cost - 0.5))
        assert decision.push == 0.0


def test_feedback_follows_the_largest_distance() -> None:
    seen = view(caps={"params": 0.9, "macs": 0.1})
    decision = Feedback(base=2.0).decide(seen, np.random.default_rng(0))
    shares = prices().shares(widths(decision.live))
    assert decision.strength == pytest.approx(2.0 * max(shares["params"] - 0.9, shares["macs"] - 0.1))


def test_feedback_draws_freely_until_the_last() -> None:
    """Before, the network may stand above the budget; the last one is trimmed, to units that were drawn."""
    seen = view(caps={"params": 0.2})
    seen = replace(seen, scores={name: np.full(len(values), 1.0) for name, values in seen.scores.items()})
    free = Feedback().decide(seen, np.random.default_rng(0)).live
    assert not prices().fits(widths(free), seen.caps)
    last = Feedback().decide(replace(seen, last=True), np.random.default_rng(0)).live
    assert prices().fits(widths(last), seen.caps)
    assert all((free[name] | ~last[name]).all() for name in free)
    small = replace(seen, caps={"params": 1.0}, last=True)
    same = Feedback().decide(small, np.random.default_rng(0)).live
    assert all(np.array_equal(free[name], same[name]) for name in free)


def test_feedback_never_empties_a_group() -> None:
    """If nothing is drawn the most likely unit lives."""
    seen = view()
    scores = {name: np.linspace(-60, -50, len(values)) for name, values in seen.scores.items()}
    for last in (False, True):
        found = Feedback().decide(replace(seen, scores=scores, last=last), np.random.default_rng(0)).live
        for name, mask in found.items():
            assert np.flatnonzero(mask).tolist() == [int(np.argmax(seen.beta[name] * scores[name]))]


# --- all ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("last", [False, True])
def test_deciding_never_mutates(preset: str, last: bool) -> None:
    controller: Controller = methods.parse_method(preset).controller
    seen, same = view(last=last), view(last=last)
    controller.decide(seen, np.random.default_rng(0))
    for field in ("scores", "beta", "live", "lived"):
        for name, values in getattr(same, field).items():
            assert np.array_equal(getattr(seen, field)[name], values), field
    assert seen.limits == same.limits


# --- groups that compete by price ---------------------------------------------------------------------------------


@cache
def residual_prices() -> Prices:
    """Early layers are cheap in parameters and dear in macs, late ones the other way round."""
    with torch.device("meta"):
        model = resnet20()
    return Prices(meristem.trace(model, torch.zeros(1, 3, 32, 32, device="meta")))


def searched(limits: dict[str, float]) -> dict[str, float]:
    """The cost of the network of groups that compete with random importance, half of their units live."""
    rng, full = np.random.default_rng(0), residual_prices().space.full
    live = {name: np.arange(units) < units // 2 for name, units in full.items()}
    importance = {name: rng.lognormal(size=units) for name, units in full.items()}
    ones = {name: np.ones(units) for name, units in full.items()}
    seen = View(importance, ones, live, live, limits, limits, last=False, prices=residual_prices())
    return residual_prices().shares(widths(Exact(ImportancePerPrice()).decide(seen, rng).live))


def test_a_budget_prices_what_it_names_and_nothing_else() -> None:
    """Under parameters alone early layers grow, under macs alone late ones; a cap that does not bind is as none."""
    by_params, by_macs = searched({"params": 0.4}), searched({"macs": 0.4})
    assert by_params["macs"] > 0.44 > 0.4 >= by_params["params"] > 0.39
    assert by_macs["params"] > 0.44 > 0.4 >= by_macs["macs"] > 0.39
    assert searched({"params": 0.4, "macs": 0.95}) == by_params


@pytest.mark.parametrize("macs", [0.38, 0.4, 0.42])
def test_several_caps_are_all_used(macs: float) -> None:
    """Where both bind, neither is far from its cap."""
    found = searched({"params": 0.4, "macs": macs})
    assert 0.96 < found["params"] / 0.4 <= 1 + 1e-9
    assert 0.96 < found["macs"] / macs <= 1 + 1e-9


# --- the paper's random baseline ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [0.1, 0.36, 0.8])
def test_fixed_probability_is_expected_to_cost_the_budget(cap: float) -> None:
    """Many draws cost the budget in the mean, whatever the scores say; every draw differs from the one before."""
    controller, rng = FixedProbability(), np.random.default_rng(0)
    draws = [controller.decide(view(0, caps={"params": cap}), rng).live for _ in range(200)]
    assert np.mean([prices().share("params", widths(live)) for live in draws]) == pytest.approx(cap, rel=0.06)
    assert len({tuple(np.flatnonzero(live[name])) for live in draws for name in list(live)[:1]}) > 100


def test_fixed_probability_lands_on_the_budget() -> None:
    """The last draw is at the budget or just under it, not one unit more would fit."""
    live = FixedProbability().decide(view(0, caps={"params": 0.3}, last=True), np.random.default_rng(1)).live
    assert prices().fits(widths(live), {"params": 0.3})
    for name, width in widths(live).items():
        assert not prices().fits({**widths(live), name: width + 1}, {"params": 0.3})


def test_a_concrete_gate_is_drawn_with_its_own_probability() -> None:
    """Open with probability sigma(s) at any temperature: so often it is above one half, and so often it is drawn."""
    gate, noise = Concrete(), torch.rand(20_000, generator=torch.Generator().manual_seed(0))
    score = torch.full_like(noise, -1.0)
    for beta in (1.0, 30.0):
        above = (gate.value(score, torch.full_like(noise, beta), noise) > 0.5).double().mean()
        assert above == pytest.approx(float(sigmoid(np.array(-1.0))), abs=0.01)
    decider = Decider(methods.parse_method("paper:gate=gumbel"), prices().space, Budget(params="30%"), 10, 0, 0)
    old = decider.first_progress.with_drawn({name: np.full(n, 10) for name, n in prices().space.full.items()})
    assert all((beta == 100.0).all() for beta in decider.beta(old).values())
    assert all((k == 1.0).all() for k in decider.draw_sharpness(old).values())
