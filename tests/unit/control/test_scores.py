"""How scores learn: descent against plain autograd and torch's SGD, importance against sums by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, optim

from helpers import build, go, loss, random_target, run
from meristem import Gates, Live, Space
from meristem.control.penalty import MeanPerGroup, Penalty, PlainSum
from meristem.control.scores import Chance, Descent, Epoch, Importance, Learner
from meristem.gating.kinds import Concrete, GateKind, Open, Sigmoid
from meristem.gating.pulls import Pulls
from meristem.space.arrays import BoolArray, FloatArray

CPU = torch.device("cpu")
STEPS = 6


def masks(*rows: str) -> dict[str, BoolArray]:
    """Groups a, b, ... from rows like "110"."""
    return {"abc"[index]: np.array([mark == "1" for mark in row]) for index, row in enumerate(rows)}


def zeros(live: dict[str, BoolArray]) -> dict[str, FloatArray]:
    return {name: np.zeros(len(mask)) for name, mask in live.items()}


def epoch(live: dict[str, BoolArray], beta: float = 1.0, **more: float) -> Epoch:
    return Epoch(live, {name: np.full(len(mask), beta) for name, mask in live.items()}, CPU, **more)


# --- descent ------------------------------------------------------------------------------------------------------


class Setting:
    """A net of the zoo with some units live, random scores and temperatures, the same every time."""

    def __init__(self, name: str, space: Space) -> None:
        rng = np.random.default_rng(3)
        self.model, self.inputs = build(name, torch.float32)
        self.live = Live(self.model, space)
        go(self.live, random_target(space, rng))
        self.scores = {group: rng.normal(size=units) for group, units in space.full.items()}
        self.beta = {group: rng.uniform(0.5, 3.0, units) for group, units in space.full.items()}
        self.weights = optim.SGD(self.model.parameters(), lr=0.02)

    def backward(self) -> Tensor:
        self.weights.zero_grad()
        value = loss(run(self.model, self.inputs))
        value.backward()
        return value.detach()


LR_FRACS = [1.0, 1.0, 0.7, 0.5, 0.5, 0.1]


def learned(name: str, space: Space, policy: Descent, now: dict[str, float]) -> tuple[list[FloatArray], list[float]]:
    """The product: scores after every step, and the losses."""
    at = Setting(name, space)
    learner = policy.learner(at.scores, np.random.default_rng(8))
    learner.begin(Epoch(at.live.masks, at.beta, CPU, **now))
    if learner.scales:
        Gates(at.live, learner.values)
    pulls, seen, losses = Pulls(at.live), [], []
    for lr_frac in LR_FRACS:
        losses.append(float(at.backward()))
        learner.step(pulls(), lr_frac)
        at.weights.step()
        seen.append(np.concatenate(list(learner.scores.values())))
    return seen, losses


def reference(
    name: str, space: Space, policy: Descent, now: dict[str, float], value: Callable[..., Tensor]
) -> tuple[list[FloatArray], list[float]]:
    """The paper as one would write it: scores are parameters, gates are in the graph, the penalty is in the loss."""
    at = Setting(name, space)
    rng = np.random.default_rng(8)
    units = space.full
    s = torch.from_numpy(np.concatenate(list(at.scores.values()))).float().requires_grad_()
    beta = torch.from_numpy(np.concatenate(list(at.beta.values()))).float()
    weight = torch.cat([torch.full((units[g],), policy.penalty.weight(units)[g]) for g in units])
    rate = policy.rate * (now.get("pace", 1.0) if policy.per_run else 1.0)
    optimizer = optim.SGD([s], lr=rate, momentum=policy.momentum, weight_decay=policy.decay)
    gates: dict[str, Tensor] = {}
    Gates(at.live, lambda group: gates[group][torch.from_numpy(at.live.masks[group])])
    seen, losses = [], []
    for lr_frac in LR_FRACS:
        noise = torch.from_numpy(rng.random(len(s), dtype=np.float32)) if policy.gate.noisy else None
        hard = now.get("hardness", 0.0)
        values = hard + (1 - hard) * value(s, beta, noise)
        gates.update(zip(units, values.split(list(units.values())), strict=True))
        optimizer.zero_grad()
        at.weights.zero_grad()
        task = loss(run(at.model, at.inputs))
        (task + now.get("strength", 0.0) * (weight * torch.sigmoid(beta * s)).sum()).backward()
        losses.append(float(task.detach()))
        optimizer.param_groups[0]["lr"] = rate * lr_frac
        optimizer.step()
        at.weights.step()
        seen.append(s.detach().double().numpy().copy())
    return seen, losses


VALUES: dict[str, tuple[GateKind, Callable[..., Tensor]]] = {
    "sigmoid": (Sigmoid(), lambda s, beta, noise: torch.sigmoid(beta * s)),
    "concrete": (Concrete(), lambda s, beta, noise: torch.sigmoid((s + torch.logit(noise)) * beta)),
    # Straight through: the value is 1, the gradient that of sigma.
    "open": (Open(), lambda s, beta, noise: 1 + torch.sigmoid(beta * s) - torch.sigmoid(beta * s).detach()),
}


@pytest.mark.parametrize(
    "now",
    [{}, {"strength": 0.3}, {"strength": -0.2, "pace": 2.5}, {"hardness": 0.4}, {"hardness": 1.0, "strength": 0.1}],
    ids=str,
)
@pytest.mark.parametrize("gate", VALUES)
@pytest.mark.parametrize("name", ["plain", "lstm_lm"])
def test_descent_is_sgd_on_gates_in_the_graph(name: str, gate: str, now: dict[str, float], space_of) -> None:
    """Nothing of ours in the reference but the hooks that multiply: same scores after every step, same losses."""
    kind, value = VALUES[gate]
    policy = Descent(gate=kind, rate=0.5)
    found, losses = learned(name, space_of(name), policy, now)
    expected, task = reference(name, space_of(name), policy, now, value)
    assert losses == pytest.approx(task, rel=1e-4, abs=1e-6)
    for number, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        assert got == pytest.approx(wanted, rel=1e-4, abs=2e-5), f"step {number}"


@pytest.mark.parametrize("penalty", [PlainSum(), MeanPerGroup()], ids=["PlainSum", "MeanPerGroup"])
@pytest.mark.parametrize("per_run", [True, False])
def test_descent_with_other_settings(penalty: Penalty, per_run: bool, space_of) -> None:
    policy = Descent(Sigmoid(), penalty, rate=0.3, momentum=0.5, decay=1e-2, per_run=per_run)
    now = {"strength": 0.05, "pace": 3.0}
    found, _ = learned("plain", space_of("plain"), policy, now)
    expected, _ = reference("plain", space_of("plain"), policy, now, VALUES["sigmoid"][1])
    assert found[-1] == pytest.approx(expected[-1], rel=1e-4, abs=2e-5)


def test_penalty_reaches_all_scores_the_task_only_live_ones() -> None:
    """That is how an absent unit can come back: a negative strength lifts it though no gradient of the task does."""
    live = masks("1100", "10")
    for strength in (0.0, -1.0, 1.0):
        learner = Descent(rate=1.0, momentum=0.0, decay=0.0).learner(zeros(live), np.random.default_rng(0))
        learner.begin(epoch(live, strength=strength))
        learner.step(torch.tensor([1.0, -1.0, 0.0]), 1.0)
        scores = learner.scores
        assert np.sign(scores["a"][2:]).tolist() == [-strength, -strength]
        assert np.sign(scores["b"]).tolist() == [-strength, -strength]
        assert scores["a"][0] < scores["a"][1], "a unit whose gate the loss wants larger goes up"


def test_learning_rate_schedule_and_pace() -> None:
    live = masks("11")
    moved = []
    for lr_frac, pace, per_run in ((1.0, 1.0, True), (0.5, 1.0, True), (1.0, 4.0, True), (1.0, 4.0, False)):
        learner = Descent(rate=0.1, per_run=per_run).learner(zeros(live), np.random.default_rng(0))
        learner.begin(epoch(live, pace=pace))
        learner.step(torch.tensor([1.0, 0.0]), lr_frac)
        moved.append(learner.scores["a"][0])
    assert np.array(moved) / moved[0] == pytest.approx([1.0, 0.5, 4.0, 1.0])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_descent_skips_a_step_that_overflowed(wrong: float) -> None:
    live = masks("110", "1")
    learner = Descent().learner(zeros(live), np.random.default_rng(0))
    learner.begin(epoch(live, strength=1.0))
    learner.step(torch.tensor([0.1, 0.2, 0.3]), 1.0)
    before = learner.scores
    learner.step(torch.tensor([0.1, wrong, 0.3]), 1.0)
    assert all(np.array_equal(learner.scores[name], before[name]) for name in before)


def test_values_are_those_of_live_units_in_order() -> None:
    """Among the live ones, by group; hardened gates are 1; a gate that does not scale says so."""
    live = masks("1011", "01")
    scores = {"a": np.array([0.0, 9.0, 1.0, -1.0]), "b": np.array([9.0, 2.0])}
    learner = Descent(Sigmoid()).learner(scores, np.random.default_rng(0))
    learner.begin(epoch(live, beta=2.0))
    assert learner.values("a").tolist() == pytest.approx((1 / (1 + np.exp([0.0, -2.0, 2.0]))).tolist())
    assert learner.values("b").tolist() == pytest.approx([1 / (1 + np.exp(-4.0))])
    learner.begin(epoch(live, hardness=1.0))
    assert learner.values("a").tolist() == [1.0] * 3
    learner.begin(epoch(live, hardness=0.5))
    assert learner.values("a")[0] == pytest.approx(0.75)
    assert Descent(Open()).learner(scores, np.random.default_rng(0)).values("a") is None


def test_push_moves_all_scores_and_the_values() -> None:
    live = masks("10")
    learner = Descent().learner({"a": np.array([1.0, -1.0])}, np.random.default_rng(0))
    learner.begin(epoch(live))
    before = float(learner.values("a"))
    learner.push(0.5)
    assert learner.scores["a"].tolist() == pytest.approx([1.5, -0.5])
    assert float(learner.values("a")) > before


def test_concrete_noise() -> None:
    """New at every step, the same for the same generator, and held during one step: forward and step see one gate."""
    live = masks("1111")

    def gates(seed: int) -> list[list[float]]:
        learner = Descent(Concrete(), rate=0.0).learner(zeros(live), np.random.default_rng(seed))
        learner.begin(epoch(live))
        seen = []
        for _ in range(4):
            seen.append(learner.values("a").tolist())
            assert learner.values("a").tolist() == seen[-1]
            learner.step(torch.zeros(4), 1.0)
        return seen

    first = gates(0)
    assert first == gates(0)
    assert first != gates(1)
    assert len({tuple(values) for values in first}) == 4
    assert np.ptp(first, axis=1).min() > 0, "each unit has its own"


# --- importance -----------------------------------------------------------------------------------------------------


def fed(learner: Learner, live: dict[str, BoolArray], *pulls: list[float]) -> dict[str, list[float]]:
    """One epoch of these pulls."""
    learner.begin(epoch(live))
    for pull in pulls:
        learner.step(torch.tensor(pull), 1.0)
    learner.finish()
    return {name: values.tolist() for name, values in learner.scores.items()}


def test_evidence_is_the_mean_square() -> None:
    """By hand: signs do not matter, absent units are not judged, groups lie one after the other."""
    live = masks("101", "1")
    learner = Importance().learner(zeros(live), np.random.default_rng(0))
    assert fed(learner, live, [1.0, -2.0, 0.0], [3.0, 2.0, 4.0]) == {"a": [5.0, 0.0, 4.0], "b": [8.0]}


def test_evidence_remembers() -> None:
    """The weight of the past is ``memory``; a unit's first epoch counts in full; an absent unit keeps what it had."""
    learner = Importance(memory=0.75, grace_epochs=0).learner({"a": np.zeros(3)}, np.random.default_rng(0))
    assert fed(learner, masks("110"), [2.0, 4.0]) == {"a": [4.0, 16.0, 0.0]}
    assert fed(learner, masks("101"), [0.0, 3.0]) == {"a": [3.0, 16.0, 9.0]}
    assert fed(learner, masks("011"), [0.0, 1.0]) == {"a": [3.0, 12.0, 7.0]}


def test_units_compete_with_those_of_their_age() -> None:
    """A young unit that is the best of its age stays before an old one that is below the mean, and is old in time."""
    learner = Importance(memory=0.0, grace_epochs=2).learner({"a": np.zeros(4)}, np.random.default_rng(0))
    assert fed(learner, masks("1100"), [2.0, 4.0]) == {"a": [4.0, 16.0, 0.0, 0.0]}
    assert fed(learner, masks("1111"), [2.0, 4.0, 1.0, 3.0]) == {"a": [4.0, 16.0, 2.0, 18.0]}
    assert fed(learner, masks("1111"), [2.0, 4.0, 1.0, 3.0]) == {"a": [4.0, 16.0, 1.0, 9.0]}


def test_evidence_of_no_steps_is_none() -> None:
    learner = Importance(grace_epochs=0).learner({"a": np.zeros(2)}, np.random.default_rng(0))
    fed(learner, masks("10"), [2.0])
    assert fed(learner, masks("11")) == {"a": [4.0, 0.0]}
    assert fed(learner, masks("11"), [2.0, 3.0]) == {"a": [4.0, 9.0]}


def test_evidence_starts_without_prejudice() -> None:
    """The first scores of the controller's draws are not importance."""
    learner = Importance().learner({"a": np.array([2.5, -3.0])}, np.random.default_rng(0))
    assert learner.scores["a"].tolist() == [0.0, 0.0]
    learner.push(1.0)
    assert learner.scores["a"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_step_that_overflowed_is_no_evidence(wrong: float) -> None:
    """It says nothing about the units: neither for them nor against them."""
    live = masks("11")
    plain, hit = (Importance().learner(zeros(live), np.random.default_rng(0)) for _ in range(2))
    expected = fed(plain, live, [1.0, 2.0], [3.0, 4.0])
    assert fed(hit, live, [1.0, 2.0], [wrong, wrong], [3.0, 4.0]) == expected


def test_evidence_scales_nothing() -> None:
    learner = Importance().learner({"a": np.zeros(2)}, np.random.default_rng(0))
    learner.begin(epoch(masks("11")))
    assert not learner.scales
    assert learner.values("a") is None


# --- all ----------------------------------------------------------------------------------------------------------

LEARNERS = {"importance": Importance(), "sigmoid": Descent(), "concrete": Descent(Concrete()), "chance": Chance()}


@pytest.mark.parametrize("name", LEARNERS)
def test_scores_are_copies(name: str) -> None:
    learner = LEARNERS[name].learner({"a": np.zeros(3)}, np.random.default_rng(0))
    learner.begin(epoch(masks("111")))
    before = learner.scores["a"].copy()
    learner.scores["a"][:] = 99.0
    assert np.array_equal(learner.scores["a"], before)


@pytest.mark.parametrize("name", LEARNERS)
def test_state_goes_on_in_the_middle_of_an_epoch(name: str) -> None:
    """What one learner has gathered so far is all that another needs to end alike, but for the generator."""
    live = masks("1101", "11")
    pulls = torch.randn(STEPS, 5, generator=torch.Generator().manual_seed(0))
    learners, generators = [], []
    for _ in range(2):
        rng = np.random.default_rng(0)
        learner = LEARNERS[name].learner({k: np.ones(len(m)) for k, m in live.items()}, rng)
        learner.begin(epoch(live, strength=0.3))
        learners.append(learner)
        generators.append(rng)
    one, two = learners
    for pull in pulls[:3]:
        one.step(pull, 1.0)
    two.load(copy.deepcopy(one.state()))
    generators[1].bit_generator.state = generators[0].bit_generator.state  # the grower keeps it
    for learner in learners:
        for pull in pulls[3:]:
            learner.step(pull, 1.0)
        learner.finish()
    for group in live:
        assert np.array_equal(one.scores[group], two.scores[group])
        gates = one.values(group), two.values(group)
        assert gates == (None, None) or torch.equal(*gates)


def test_chance_does_not_listen() -> None:
    """Whatever pulls, its scores are the generator's."""
    everything = {"a": np.ones(50, dtype=bool)}
    found = [
        fed(Chance().learner({"a": np.zeros(50)}, np.random.default_rng(seed)), everything, [pull] * 50)["a"]
        for seed, pull in ((0, 5.0), (0, -1.0), (1, 5.0))
    ]
    assert found[0] == found[1] != found[2]
    assert len(set(found[0])) == 50
