"""Scores: one number per unit, from what the task and the weights say. Controllers decide by them.

A policy (`Scores`) is frozen data; the `ScoreKeeper` it makes holds the numbers of one run. Signals come in once per
optimizer step; scores are read once per epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from meristem.control.first_scores import FirstNetwork, OneDrawn
from meristem.control.text_settings import choice, number
from meristem.cost.ledger import GROW
from meristem.gating.interfaces import GateSource, Signals, WeightsOf
from meristem.gating.kinds import GateKind
from meristem.space.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class StageTime:
    """The stage of the run that an epoch belongs to, how much of it has passed, and how much of it one step takes."""

    name: str = GROW
    passed: float = 0.0
    per_step: float = 0.0


@dataclass(frozen=True)
class EpochStart:
    """What a keeper needs to know when an epoch starts.

    ``strength`` is the penalty's lambda, ``hardness`` how far gates are drawn to 1 (0: not at all, 1: they are 1),
    ``pace`` the steps the gate learning rate is meant for over those of this run. ``inactive`` are the groups that lie
    in absent blocks: they are not live, and the penalty skips them. ``stage`` is for scores that act in one stage.
    """

    live: Mapping[str, BoolArray]
    beta: Mapping[str, FloatArray]
    device: torch.device
    strength: float = 0.0
    hardness: float = 0.0
    pace: float = 1.0
    inactive: frozenset[str] = frozenset()
    stage: StageTime = StageTime()


class ScoreKeeper(GateSource, Protocol):
    """The scores of one run, and the gates where a policy trains them."""

    def begin(self, epoch: EpochStart) -> None:
        """An epoch starts."""
        ...

    def step(self, signals: Signals, lr_frac: float) -> None:
        """One optimizer step is about to be taken; ``lr_frac`` is the learning rate over its start."""
        ...

    def finish(self) -> None:
        """The epoch is over."""
        ...

    def push(self, delta: float) -> None:
        """Add a number to all scores."""
        ...

    def drift(self, steps: int, lr_frac: float) -> None:
        """So many steps pass in which the task says nothing: what a simulation without data does to the scores."""
        ...

    def scores(self, signals: Signals) -> dict[str, FloatArray]:
        """The present score of every unit, live or not."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class ScoresStart:
    """What the scores of a run start from: its first network, its random numbers and its kind of gate."""

    network: FirstNetwork
    rng: np.random.Generator
    gate: GateKind


class Scores(Protocol):
    """A policy that makes keepers. ``trains_gates`` says whether it uses the method's gate and temperature."""

    @property
    def trains_gates(self) -> bool: ...

    def keeper(self, start: ScoresStart) -> ScoreKeeper:
        """A keeper for one run."""
        ...


class OpenGates:
    """The part of a keeper whose gates stay open: nothing is scaled, and nothing can be pushed."""

    scales_gates = False

    def push(self, delta: float) -> None: ...

    def drift(self, steps: int, lr_frac: float) -> None: ...

    def gates(self, group: str) -> Tensor | None:
        return None

    def resting_gates(self, group: str) -> Tensor | None:
        return self.gates(group)


class NoSteps(OpenGates):
    """The part of a keeper that does not look at optimizer steps."""

    reads_steps = False

    def begin(self, epoch: EpochStart) -> None: ...

    def step(self, signals: Signals, lr_frac: float) -> None: ...

    def finish(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class ConstantScores:
    """Scores stay what they are at the start."""

    trains_gates = False

    def keeper(self, start: ScoresStart) -> ScoreKeeper:
        return _Constant(OneDrawn().scores(start.network, start.rng))


class _Constant(NoSteps):
    def __init__(self, scores: dict[str, FloatArray]) -> None:
        self._scores = scores

    def scores(self, signals: Signals) -> dict[str, FloatArray]:
        return {name: values.copy() for name, values in self._scores.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"scores": self._scores}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._scores = dict(state["scores"])


@dataclass(frozen=True)
class RandomScores:
    """Random scores, new in every epoch: the comparison that shows what learning is worth."""

    trains_gates = False

    def keeper(self, start: ScoresStart) -> ScoreKeeper:
        return _Random(OneDrawn().scores(start.network, start.rng), start.rng)


class _Random(_Constant):
    def __init__(self, scores: dict[str, FloatArray], rng: np.random.Generator) -> None:
        super().__init__(scores)
        self._rng = rng

    def finish(self) -> None:
        self._scores = {name: self._rng.random(len(values)) for name, values in self._scores.items()}


@dataclass(frozen=True)
class WeightNorms:
    """A unit's score is the p-norm of its weights, of all of them or of those that ``of`` names."""

    p: float = number(2.0)
    of: WeightsOf = choice(WeightsOf.UNIT, {each.value: each for each in WeightsOf})
    trains_gates = False

    def keeper(self, start: ScoresStart) -> ScoreKeeper:
        return _Norms(self)


class _Norms(NoSteps):
    def __init__(self, policy: WeightNorms) -> None:
        self._policy = policy

    def scores(self, signals: Signals) -> dict[str, FloatArray]:
        return signals.norms(self._policy.p, self._policy.of)
