"""How scores learn from the task's pull on live gates, which comes in once a step. Scores are read once an epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from meristem.control.draws import logit
from meristem.control.penalty import Penalty, SumOverMeanWidth
from meristem.errors import MeristemError
from meristem.gating.kinds import GateKind, Sigmoid
from meristem.space.arrays import BoolArray, FloatArray, IntArray
from meristem.space.space import Space


@dataclass(frozen=True)
class Epoch:
    """What a learner is told when an epoch starts.

    ``strength`` is the penalty's lambda, ``hardness`` how far gates are drawn to 1 (0: not at all, 1: they are 1),
    ``pace`` the steps the gate learning rate is meant for over those of this run. ``inactive`` are the groups that lie
    in absent blocks: they are not live, and the penalty passes them by.
    """

    live: Mapping[str, BoolArray]
    beta: Mapping[str, FloatArray]
    device: torch.device
    strength: float = 0.0
    hardness: float = 0.0
    pace: float = 1.0
    inactive: frozenset[str] = frozenset()


class Learner(Protocol):
    """The trainable side of the gates of one run."""

    scales: bool  # whether readers are scaled in the forward pass
    listens: bool  # whether it wants the pulls

    def begin(self, epoch: Epoch) -> None:
        """A new epoch starts."""
        ...

    def step(self, pull: Tensor, lr_frac: float) -> None:
        """One optimizer step. ``pull`` is g * dL/dg of all live units, ``lr_frac`` the learning rate over its start."""
        ...

    def finish(self) -> None:
        """The epoch is over."""
        ...

    def push(self, delta: float) -> None:
        """Add a number to all scores."""
        ...

    def values(self, group: str) -> Tensor | None:
        """The gates of a group's live units, or None when they are all 1."""
        ...

    @property
    def scores(self) -> dict[str, FloatArray]: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...


class Learning(Protocol):
    """A policy that makes learners. ``blocks`` are the groups whose one unit is a block."""

    def learner(
        self, scores: Mapping[str, FloatArray], rng: np.random.Generator, blocks: Collection[str] = ()
    ) -> Learner: ...


class _Open:
    """What learners have in common whose gates stay open: nothing is scaled, and nothing can be pushed."""

    scales = False
    _scores: dict[str, FloatArray]

    def push(self, delta: float) -> None: ...

    def values(self, group: str) -> Tensor | None:
        return None

    @property
    def scores(self) -> dict[str, FloatArray]:
        return {name: values.copy() for name, values in self._scores.items()}


def first_scores(masks: Mapping[str, BoolArray], space: Space, live: float = 2.5) -> dict[str, FloatArray]:
    """Live units start likely to stay; of the absent ones of a group, and of a stage's blocks, about one is drawn."""
    many = {block.group: len(stage.blocks) for stage in space.stages for block in stage.blocks}
    return {name: np.where(mask, live, logit(1.0 / (many.get(name, len(mask)) + 1))) for name, mask in masks.items()}


# --- importance ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Importance:
    """A unit's score is the mean square of the task's pull on its gate (Eq. Importance); nothing is scaled.

    The sign of the pull averages out where a norm follows: scaling all inputs of a layer together does nothing. Its
    square says how much the loss depends on the unit. ``memory`` is the weight of the past at the end of an epoch.
    Units younger than ``grace_epochs`` epochs are compared with those of their own age: a unit that came in last has
    learned less, whatever it will be worth, and would be the first to go.
    """

    memory: float = 0.5
    grace_epochs: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.memory < 1:
            raise MeristemError(f"memory must be a share of less than 1, got {self.memory}")
        if self.grace_epochs < 0:
            raise MeristemError(f"grace_epochs must be a number of epochs, at least 0, got {self.grace_epochs}")

    def learner(
        self, scores: Mapping[str, FloatArray], rng: np.random.Generator, blocks: Collection[str] = ()
    ) -> Learner:
        return _ImportanceLearner(self, {name: np.zeros_like(values) for name, values in scores.items()})


class _ImportanceLearner(_Open):
    listens = True

    def __init__(self, policy: Importance, zeros: dict[str, FloatArray]) -> None:
        self._policy, self._scores = policy, zeros
        self._ages = {name: np.zeros(len(values), dtype=np.int64) for name, values in zeros.items()}
        self._live = {name: ages > 0 for name, ages in self._ages.items()}
        self._device = torch.device("cpu")
        self._sum: Tensor | None = None
        self._steps = torch.zeros(())

    def begin(self, epoch: Epoch) -> None:
        self._live, self._device, self._sum, self._steps = dict(epoch.live), epoch.device, None, torch.zeros(())

    def step(self, pull: Tensor, lr_frac: float) -> None:
        if self._sum is None:
            self._sum, self._steps = torch.zeros_like(pull), torch.zeros((), device=pull.device)
        # A step that overflowed (fp16) says nothing about the units. Kept on the device: nothing waits for the answer.
        fine = torch.isfinite(pull).all()
        self._sum.add_(torch.where(fine, pull, 0.0).square())
        self._steps += fine

    def finish(self) -> None:
        if self._sum is None or not self._steps:
            return
        means = (self._sum / self._steps).cpu().double().numpy()  # not every device knows double precision
        first = 0
        for name, mask in self._live.items():
            mean = means[first : first + mask.sum()]
            first += len(mean)
            old, seen = self._scores[name][mask], self._ages[name][mask] > 0
            memory = self._policy.memory
            self._scores[name][mask] = np.where(seen, memory * old + (1 - memory) * mean, mean)
            self._ages[name] += mask
        self._sum = None

    @property
    def scores(self) -> dict[str, FloatArray]:
        grace_epochs = self._policy.grace_epochs
        return {
            name: fair_to_young(values, self._live[name], np.minimum(self._ages[name], grace_epochs))
            for name, values in self._scores.items()
        }

    def state(self) -> dict[str, Any]:
        return {"scores": self._scores, "ages": self._ages, "sum": self._sum, "steps": self._steps}

    def load(self, state: Mapping[str, Any]) -> None:
        self._scores, self._ages = dict(state["scores"]), dict(state["ages"])
        self._sum = None if state["sum"] is None else state["sum"].to(self._device)
        self._steps = state["steps"].to(self._device)


def fair_to_young(importance: FloatArray, live: BoolArray, ages: IntArray) -> FloatArray:
    """Live units of every age brought to the mean of the oldest: units compete with those of their own age.

    >>> fair_to_young(np.array([4.0, 8.0, 0.1, 0.3]), np.ones(4, bool), np.array([2, 2, 1, 1])).tolist()
    [4.0, 8.0, 3.0, 9.0]
    """
    fair = importance.copy()
    present = np.unique(ages[live])
    if len(present) < 2:
        return fair
    level = importance[live & (ages == present[-1])].mean()
    for age in present[:-1]:
        cohort = live & (ages == age)
        mean = importance[cohort].mean()
        if mean > 0 and level > 0:
            fair[cohort] *= level / mean
    return fair


# --- no learning -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chance:
    """Random importance, new at every epoch: the comparison that shows what learning is worth."""

    def learner(
        self, scores: Mapping[str, FloatArray], rng: np.random.Generator, blocks: Collection[str] = ()
    ) -> Learner:
        return _Idle(dict(scores), rng)


@dataclass(frozen=True)
class Nothing:
    """Scores stay what they are."""

    def learner(
        self, scores: Mapping[str, FloatArray], rng: np.random.Generator, blocks: Collection[str] = ()
    ) -> Learner:
        return _Idle(dict(scores))


class _Idle(_Open):
    """A learner that does not listen; with ``rng`` its scores are random at every epoch."""

    listens = False

    def __init__(self, scores: dict[str, FloatArray], rng: np.random.Generator | None = None) -> None:
        self._scores, self._rng = scores, rng

    def begin(self, epoch: Epoch) -> None: ...

    def step(self, pull: Tensor, lr_frac: float) -> None: ...

    def finish(self) -> None:
        if self._rng is not None:
            self._scores = {name: self._rng.random(len(values)) for name, values in self._scores.items()}

    def state(self) -> dict[str, Any]:
        return {"scores": self._scores}

    def load(self, state: Mapping[str, Any]) -> None:
        self._scores = dict(state["scores"])


# --- descent -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """Scores are trained by SGD on the task's gradient and the width penalty: the paper's learning.

    ``rate`` is multiplied with the learning-rate schedule of the weights and, with ``per_run``, with the number of
    steps the paper trained for over those of this run, so that a short run moves the scores as far.
    """

    gate: GateKind = Sigmoid()
    penalty: Penalty = SumOverMeanWidth()
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 1e-6
    per_run: bool = True
    block_weight: float = 0.1  # of a block in the penalty: the paper's lambda of depth over that of width

    def learner(
        self, scores: Mapping[str, FloatArray], rng: np.random.Generator, blocks: Collection[str] = ()
    ) -> Learner:
        return _DescentLearner(self, scores, rng, blocks)


class _DescentLearner:
    """One flat vector for all units, so that a step is a handful of operations whatever the number of groups."""

    listens = True

    def __init__(
        self, policy: Descent, scores: Mapping[str, FloatArray], rng: np.random.Generator, blocks: Collection[str]
    ) -> None:
        self._policy, self._rng = policy, rng
        self._units = {name: len(values) for name, values in scores.items()}
        self._s = torch.from_numpy(np.concatenate(list(scores.values()))).float()
        self._velocity = torch.zeros_like(self._s)
        self._noise = torch.full_like(self._s, 0.5)
        widths = {name: count for name, count in self._units.items() if name not in blocks}
        self._weights = {**policy.penalty.weight(widths), **dict.fromkeys(blocks, policy.block_weight)}
        self._weight = torch.zeros_like(self._s)
        self._values: Tensor | None = None
        self.scales = policy.gate.scales

    def begin(self, epoch: Epoch) -> None:
        device = epoch.device
        self._strength, self._hardness = epoch.strength, epoch.hardness
        self._rate = self._policy.rate * (epoch.pace if self._policy.per_run else 1.0)
        self._beta = torch.from_numpy(np.concatenate([epoch.beta[name] for name in self._units])).float().to(device)
        flat = np.concatenate([epoch.live[name] for name in self._units])
        self._at = torch.from_numpy(np.flatnonzero(flat)).to(device)
        counts = [int(epoch.live[name].sum()) for name in self._units]
        self._ends = dict(zip(self._units, np.cumsum(counts).tolist(), strict=True))
        self._counts = dict(zip(self._units, counts, strict=True))
        weights = [0.0 if name in epoch.inactive else self._weights[name] for name in self._units]
        self._weight = torch.from_numpy(np.repeat(weights, list(self._units.values()))).float()
        for name in ("_s", "_velocity", "_weight", "_noise"):
            setattr(self, name, getattr(self, name).to(device))
        self._renew()

    def step(self, pull: Tensor, lr_frac: float) -> None:
        if not torch.isfinite(pull).all():  # an overflow under mixed precision says nothing about the units
            return
        s, beta, at, policy = self._s, self._beta, self._at, self._policy
        p = torch.sigmoid(beta * s)
        gradient = self._strength * self._weight * beta * p * (1 - p) + policy.decay * s
        slope = policy.gate.slope(s[at], beta[at], self._noise[at]) * (1 - self._hardness)
        gradient[at] += pull / self._live_values().clamp_min(1e-6) * slope
        self._velocity.mul_(policy.momentum).add_(gradient)
        s.sub_(self._velocity, alpha=self._rate * lr_frac)
        self._renew()

    def finish(self) -> None: ...

    def push(self, delta: float) -> None:
        self._s.add_(delta)
        self._values = None

    def values(self, group: str) -> Tensor | None:
        if not self.scales:
            return None
        last = self._ends[group]
        return self._live_values()[last - self._counts[group] : last]

    def _live_values(self) -> Tensor:
        if self._values is None:
            at = self._at
            soft = self._policy.gate.value(self._s[at], self._beta[at], self._noise[at])
            self._values = self._hardness + (1 - self._hardness) * soft
        return self._values

    def _renew(self) -> None:
        """The values have changed; a random gate gets new noise for the next step."""
        self._values = None
        if self._policy.gate.noisy:
            noise = self._rng.random(len(self._noise), dtype=np.float32)
            self._noise = torch.from_numpy(noise).to(self._s.device)

    @property
    def scores(self) -> dict[str, FloatArray]:
        flat = self._s.cpu().double().numpy()
        parts = np.split(flat, np.cumsum(list(self._units.values()))[:-1])
        return {name: part.copy() for name, part in zip(self._units, parts, strict=True)}

    def state(self) -> dict[str, Any]:
        tensors = {"s": self._s, "velocity": self._velocity, "noise": self._noise, "beta": self._beta}
        return {**tensors, "hardness": self._hardness}

    def load(self, state: Mapping[str, Any]) -> None:
        device = self._s.device
        self._s, self._velocity, self._noise = (state[name].to(device) for name in ("s", "velocity", "noise"))
        if "beta" in state:  # after the last epoch these are still those of it; files of before do not have them
            self._beta, self._hardness = state["beta"].to(device), float(state["hardness"])
        self._values = None
