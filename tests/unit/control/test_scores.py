"""How scores learn: descent against plain autograd and torch's SGD, importance against sums by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, optim

from helpers import build, go, loss, random_target, run
from meristem import Gates, Live, Space
from meristem.control.first_scores import FirstNetwork
from meristem.control.importance import Importance
from meristem.control.penalty import MeanPerGroup, Penalty, PlainSum
from meristem.control.scores import EpochStart, RandomScores, ScoreKeeper, Scores, ScoresStart
from meristem.control.trained_gates import TrainedGates
from meristem.cost.price import Prices
from meristem.gating.interfaces import WeightsOf
from meristem.gating.kinds import Concrete, GateKind, Open, Sigmoid
from meristem.gating.pulls import Pulls
from meristem.space.arrays import BoolArray, FloatArray
from meristem.space.space import Group

CPU = torch.device("cpu")
STEPS = 6


def masks(*rows: str) -> dict[str, BoolArray]:
    """Groups a, b, ... from rows like "110"."""
    return {"abc"[index]: np.array([mark == "1" for mark in row]) for index, row in enumerate(rows)}


def zeros(live: dict[str, BoolArray]) -> dict[str, FloatArray]:
    return {name: np.zeros(len(mask)) for name, mask in live.items()}


def epoch(live: dict[str, BoolArray], beta: float = 1.0, **more: float) -> EpochStart:
    return EpochStart(live, {name: np.full(len(mask), beta) for name, mask in live.items()}, CPU, **more)


class Given:
    """Signals that say what a test wants them to."""

    def __init__(self, pull: Tensor | list[float] | None = None) -> None:
        self._pull = torch.as_tensor(pull if pull is not None else [])

    def pull(self) -> Tensor:
        return self._pull

    def norms(self, p: float, of: WeightsOf = WeightsOf.UNIT) -> dict[str, FloatArray]:
        raise AssertionError("not asked for")


@dataclass(frozen=True)
class Exactly:
    """First scores that a test gives."""

    first: Mapping[str, FloatArray]

    def scores(self, network: FirstNetwork, rng: np.random.Generator) -> dict[str, FloatArray]:
        return dict(self.first)


def start_of(first: Mapping[str, FloatArray], rng: np.random.Generator, gate: GateKind) -> ScoresStart:
    """The start of a space that has these groups and nothing else."""
    groups = {name: Group(name, len(values), "width") for name, values in first.items()}
    space = Space(groups, (), {}, (), (), (), ())
    masks = {name: np.zeros(len(values), dtype=np.bool_) for name, values in first.items()}
    return ScoresStart(FirstNetwork(masks, Prices(space), {"params": 1.0}), rng, gate)


def keeper_of(
    policy: Scores, first: dict[str, FloatArray], seed: int | np.random.Generator = 0, gate: GateKind | None = None
) -> ScoreKeeper:
    policy = replace(policy, first=Exactly(first)) if isinstance(policy, TrainedGates) else policy
    return policy.keeper(start_of(first, np.random.default_rng(seed), gate or Sigmoid()))


def scores_of(keeper: ScoreKeeper) -> dict[str, FloatArray]:
    return keeper.scores(Given())


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


def learned(
    name: str, space: Space, policy: TrainedGates, now: dict[str, float], gate: GateKind | None = None
) -> tuple[list[FloatArray], list[float]]:
    """The product: scores after every step, and the losses."""
    at = Setting(name, space)
    keeper = keeper_of(policy, at.scores, 8, gate)
    keeper.begin(EpochStart(at.live.masks, at.beta, CPU, **now))
    if keeper.scales_gates:
        Gates(at.live, keeper.gates)
    pulls, seen, losses = Pulls(at.live), [], []
    for lr_frac in LR_FRACS:
        losses.append(float(at.backward()))
        keeper.step(Given(pulls()), lr_frac)
        at.weights.step()
        seen.append(np.concatenate(list(scores_of(keeper).values())))
    return seen, losses


def reference(
    name: str,
    space: Space,
    policy: TrainedGates,
    now: dict[str, float],
    value: Callable[..., Tensor],
    noisy: bool,
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
        noise = torch.from_numpy(rng.random(len(s), dtype=np.float32)) if noisy else None
        hard = now.get("hardness", 0.0)
        values = hard + (1 - hard) * value(s, beta, noise)
        gates.update(zip(units, values.split(list(units.values())), strict=True))
        optimizer.zero_grad()
        at.weights.zero_grad()
        task = loss(run(at.model, at.inputs))
        # A concrete gate is open with probability sigma(s) at any temperature, and that is what is penalised.
        probability = torch.sigmoid(s if noisy else beta * s)
        (task + now.get("strength", 0.0) * (weight * probability).sum()).backward()
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
    policy = TrainedGates(rate=0.5)
    found, losses = learned(name, space_of(name), policy, now, kind)
    expected, task = reference(name, space_of(name), policy, now, value, kind.noisy)
    assert losses == pytest.approx(task, rel=1e-4, abs=1e-6)
    for number, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        assert got == pytest.approx(wanted, rel=1e-4, abs=2e-5), f"step {number}"


def test_the_weight_of_the_task_multiplies_its_gradient_alone(space_of) -> None:
    """Twice the weight moves a score by twice the task's part; what the penalty does to it stays."""
    space, now = space_of("plain"), {"strength": 0.3}
    silent, once, twice = (
        learned("plain", space, TrainedGates(rate=0.5, task_weight=weight), now, Sigmoid())[0][0]
        for weight in (0, 1, 2)
    )
    assert np.abs(once - silent).max() > 1e-5
    assert twice - silent == pytest.approx(2 * (once - silent), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("penalty", [PlainSum(), MeanPerGroup()], ids=["PlainSum", "MeanPerGroup"])
@pytest.mark.parametrize("per_run", [True, False])
def test_descent_with_other_settings(penalty: Penalty, per_run: bool, space_of) -> None:
    policy = TrainedGates(penalty, rate=0.3, momentum=0.5, decay=1e-2, per_run=per_run)
    now = {"strength": 0.05, "pace": 3.0}
    found, _ = learned("plain", space_of("plain"), policy, now)
    expected, _ = reference("plain", space_of("plain"), policy, now, VALUES["sigmoid"][1], False)
    assert found[-1] == pytest.approx(expected[-1], rel=1e-4, abs=2e-5)


def test_penalty_reaches_all_scores_the_task_only_live_ones() -> None:
    """That is how an absent unit can come back: a negative strength lifts it though no gradient of the task does."""
    live = masks("1100", "10")
    for strength in (0.0, -1.0, 1.0):
        keeper = keeper_of(TrainedGates(rate=1.0, momentum=0.0, decay=0.0), zeros(live), 0)
        keeper.begin(epoch(live, strength=strength))
        keeper.step(Given(torch.tensor([1.0, -1.0, 0.0])), 1.0)
        scores = scores_of(keeper)
        assert np.sign(scores["a"][2:]).tolist() == [-strength, -strength]
        assert np.sign(scores["b"]).tolist() == [-strength, -strength]
        assert scores["a"][0] < scores["a"][1], "a unit whose gate the loss wants larger goes up"


def test_learning_rate_schedule_and_pace() -> None:
    live = masks("11")
    moved = []
    for lr_frac, pace, per_run in ((1.0, 1.0, True), (0.5, 1.0, True), (1.0, 4.0, True), (1.0, 4.0, False)):
        keeper = keeper_of(TrainedGates(rate=0.1, per_run=per_run), zeros(live), 0)
        keeper.begin(epoch(live, pace=pace))
        keeper.step(Given(torch.tensor([1.0, 0.0])), lr_frac)
        moved.append(scores_of(keeper)["a"][0])
    assert np.array(moved) / moved[0] == pytest.approx([1.0, 0.5, 4.0, 1.0])


@pytest.mark.parametrize("beta", [1.0, 7.0])
@pytest.mark.parametrize("strength", [-0.4, 0.02])
def test_drift_is_what_many_silent_steps_do(beta: float, strength: float) -> None:
    """The closed form against the optimizer, step by step, with a task that says nothing."""
    live = masks("110000", "10")
    first = {"a": np.array([3.0, 1.0, -1.0, -2.0, -4.0, -6.0]), "b": np.array([2.0, -3.0])}
    policy = TrainedGates(penalty=PlainSum(), rate=0.002, per_run=False, decay=0.0)
    stepped, drifted = keeper_of(policy, first), keeper_of(policy, first)
    for keeper in (stepped, drifted):
        keeper.begin(epoch(live, beta, strength=strength))
    for _ in range(2000):
        stepped.step(Given(torch.zeros(3)), 0.5)
    drifted.drift(2000, 0.5)
    for name, scores in scores_of(stepped).items():
        moved = np.abs(scores - first[name]).max()
        assert scores_of(drifted)[name] == pytest.approx(scores, abs=0.02 * moved + 1e-4)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_descent_skips_a_step_that_overflowed(wrong: float) -> None:
    live = masks("110", "1")
    keeper = keeper_of(TrainedGates(), zeros(live), 0)
    keeper.begin(epoch(live, strength=1.0))
    keeper.step(Given(torch.tensor([0.1, 0.2, 0.3])), 1.0)
    before = scores_of(keeper)
    keeper.step(Given(torch.tensor([0.1, wrong, 0.3])), 1.0)
    assert all(np.array_equal(scores_of(keeper)[name], before[name]) for name in before)


def test_values_are_those_of_live_units_in_order() -> None:
    """Among the live ones, by group; hardened gates are 1; a gate that does not scale says so."""
    live = masks("1011", "01")
    scores = {"a": np.array([0.0, 9.0, 1.0, -1.0]), "b": np.array([9.0, 2.0])}
    keeper = keeper_of(TrainedGates(), scores)
    keeper.begin(epoch(live, beta=2.0))
    assert keeper.gates("a").tolist() == pytest.approx((1 / (1 + np.exp([0.0, -2.0, 2.0]))).tolist())
    assert keeper.gates("b").tolist() == pytest.approx([1 / (1 + np.exp(-4.0))])
    keeper.begin(epoch(live, hardness=1.0))
    assert keeper.gates("a").tolist() == [1.0] * 3
    keeper.begin(epoch(live, hardness=0.5))
    assert keeper.gates("a")[0] == pytest.approx(0.75)
    assert keeper_of(TrainedGates(), scores, gate=Open()).gates("a") is None


def test_push_moves_all_scores_and_the_values() -> None:
    live = masks("10")
    keeper = keeper_of(TrainedGates(), {"a": np.array([1.0, -1.0])}, 0)
    keeper.begin(epoch(live))
    before = float(keeper.gates("a"))
    keeper.push(0.5)
    assert scores_of(keeper)["a"].tolist() == pytest.approx([1.5, -0.5])
    assert float(keeper.gates("a")) > before


def test_concrete_noise() -> None:
    """New at every step, the same for the same generator, and held during one step: forward and step see one gate."""
    live = masks("1111")

    def gates(seed: int) -> list[list[float]]:
        keeper = keeper_of(TrainedGates(rate=0.0), zeros(live), seed, Concrete())
        keeper.begin(epoch(live))
        seen = []
        for _ in range(4):
            seen.append(keeper.gates("a").tolist())
            assert keeper.gates("a").tolist() == seen[-1]
            keeper.step(Given(torch.zeros(4)), 1.0)
        return seen

    first = gates(0)
    assert first == gates(0)
    assert first != gates(1)
    assert len({tuple(values) for values in first}) == 4
    assert np.ptp(first, axis=1).min() > 0, "each unit has its own"


# --- importance -----------------------------------------------------------------------------------------------------


def fed(keeper: ScoreKeeper, live: dict[str, BoolArray], *pulls: list[float]) -> dict[str, list[float]]:
    """One epoch of these pulls."""
    keeper.begin(epoch(live))
    for pull in pulls:
        keeper.step(Given(torch.tensor(pull)), 1.0)
    keeper.finish()
    return {name: values.tolist() for name, values in scores_of(keeper).items()}


def test_evidence_is_the_mean_square() -> None:
    """By hand: signs do not matter, absent units are not judged, groups lie one after the other."""
    live = masks("101", "1")
    keeper = keeper_of(Importance(), zeros(live), 0)
    assert fed(keeper, live, [1.0, -2.0, 0.0], [3.0, 2.0, 4.0]) == {"a": [5.0, 0.0, 4.0], "b": [8.0]}


def test_evidence_remembers() -> None:
    """The weight of the past is ``memory``; a unit's first epoch counts in full; an absent unit keeps what it had."""
    keeper = keeper_of(Importance(memory=0.75, grace_epochs=0), {"a": np.zeros(3)}, 0)
    assert fed(keeper, masks("110"), [2.0, 4.0]) == {"a": [4.0, 16.0, 0.0]}
    assert fed(keeper, masks("101"), [0.0, 3.0]) == {"a": [3.0, 16.0, 9.0]}
    assert fed(keeper, masks("011"), [0.0, 1.0]) == {"a": [3.0, 12.0, 7.0]}


def test_units_compete_with_those_of_their_age() -> None:
    """A young unit that is the best of its age stays before an old one that is below the mean, and is old in time."""
    keeper = keeper_of(Importance(memory=0.0, grace_epochs=2), {"a": np.zeros(4)}, 0)
    assert fed(keeper, masks("1100"), [2.0, 4.0]) == {"a": [4.0, 16.0, 0.0, 0.0]}
    assert fed(keeper, masks("1111"), [2.0, 4.0, 1.0, 3.0]) == {"a": [4.0, 16.0, 2.0, 18.0]}
    assert fed(keeper, masks("1111"), [2.0, 4.0, 1.0, 3.0]) == {"a": [4.0, 16.0, 1.0, 9.0]}


def test_evidence_of_no_steps_is_none() -> None:
    keeper = keeper_of(Importance(grace_epochs=0), {"a": np.zeros(2)}, 0)
    fed(keeper, masks("10"), [2.0])
    assert fed(keeper, masks("11")) == {"a": [4.0, 0.0]}
    assert fed(keeper, masks("11"), [2.0, 3.0]) == {"a": [4.0, 9.0]}


def test_evidence_starts_without_prejudice() -> None:
    """The first scores of the controller's draws are not importance."""
    keeper = keeper_of(Importance(), {"a": np.array([2.5, -3.0])}, 0)
    assert scores_of(keeper)["a"].tolist() == [0.0, 0.0]
    keeper.push(1.0)
    assert scores_of(keeper)["a"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_step_that_overflowed_is_no_evidence(wrong: float) -> None:
    """It says nothing about the units: neither for them nor against them."""
    live = masks("11")
    plain, hit = (keeper_of(Importance(), zeros(live), 0) for _ in range(2))
    expected = fed(plain, live, [1.0, 2.0], [3.0, 4.0])
    assert fed(hit, live, [1.0, 2.0], [wrong, wrong], [3.0, 4.0]) == expected


def test_evidence_scales_nothing() -> None:
    keeper = keeper_of(Importance(), {"a": np.zeros(2)}, 0)
    keeper.begin(epoch(masks("11")))
    assert not keeper.scales_gates
    assert keeper.gates("a") is None


# --- all ----------------------------------------------------------------------------------------------------------

KEEPERS: dict[str, tuple[Scores, GateKind]] = {
    "importance": (Importance(), Open()),
    "sigmoid": (TrainedGates(), Sigmoid()),
    "concrete": (TrainedGates(), Concrete()),
    "random": (RandomScores(), Open()),
}


@pytest.mark.parametrize("name", KEEPERS)
def test_scores_are_copies(name: str) -> None:
    policy, gate = KEEPERS[name]
    keeper = keeper_of(policy, {"a": np.zeros(3)}, gate=gate)
    keeper.begin(epoch(masks("111")))
    before = scores_of(keeper)["a"].copy()
    scores_of(keeper)["a"][:] = 99.0
    assert np.array_equal(scores_of(keeper)["a"], before)


@pytest.mark.parametrize("name", KEEPERS)
def test_state_goes_on_in_the_middle_of_an_epoch(name: str) -> None:
    """What one keeper has gathered so far is all that another needs to end alike, but for the generator."""
    live = masks("1101", "11")
    pulls = torch.randn(STEPS, 5, generator=torch.Generator().manual_seed(0))
    keepers, generators = [], []
    for _ in range(2):
        rng = np.random.default_rng(0)
        policy, gate = KEEPERS[name]
        ones = {k: np.ones(len(m)) for k, m in live.items()}
        policy = replace(policy, first=Exactly(ones)) if isinstance(policy, TrainedGates) else policy
        keeper = policy.keeper(start_of(ones, rng, gate))
        keeper.begin(epoch(live, strength=0.3))
        keepers.append(keeper)
        generators.append(rng)
    one, two = keepers
    for pull in pulls[:3]:
        one.step(Given(pull), 1.0)
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    generators[1].bit_generator.state = generators[0].bit_generator.state  # the grower keeps it
    for keeper in keepers:
        for pull in pulls[3:]:
            keeper.step(Given(pull), 1.0)
        keeper.finish()
    for group in live:
        assert np.array_equal(scores_of(one)[group], scores_of(two)[group])
        gates = one.gates(group), two.gates(group)
        assert gates == (None, None) or torch.equal(*gates)


def test_chance_does_not_listen() -> None:
    """Whatever pulls, its scores are the generator's."""
    everything = {"a": np.ones(50, dtype=bool)}
    found = [
        fed(keeper_of(RandomScores(), {"a": np.zeros(50)}, seed), everything, [pull] * 50)["a"]
        for seed, pull in ((0, 5.0), (0, -1.0), (1, 5.0))
    ]
    assert found[0] == found[1] != found[2]
    assert len(set(found[0])) == 50
