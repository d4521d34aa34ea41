"""Gates trained by gradient descent, with a penalty on the width: the paper's learning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.control.first_scores import FIRST_SCORES, FirstScores, OneDrawn
from meristem.control.penalty import PENALTIES, Penalty, SumOverMeanWidth
from meristem.control.scores import EpochStart, ScoreKeeper, ScoresStart
from meristem.control.text_settings import choice, flag, number
from meristem.gating.interfaces import Signals
from meristem.space.arrays import FloatArray
from meristem.space.live_index import LiveIndex

_SATURATED = 36.0  # |beta s| from which on the penalty does not move a score any more


@dataclass(frozen=True)
class TrainedGates:
    """Scores are trained by SGD on the task's gradient and the width penalty (Eq. Trained gates).

    ``rate`` is multiplied with the learning-rate schedule of the weights and, with ``per_run``, with the number of
    steps the paper trained for over those of this run, so that a short run moves the scores as far. With
    ``every_score`` the penalty acts on units of absent blocks, too, as printed. ``task_weight`` multiplies the task's
    gradient, 1 in the paper: it is small beside the penalty (docs/paper.md).
    """

    penalty: Penalty = choice(SumOverMeanWidth(), PENALTIES)
    first: FirstScores = choice(OneDrawn(), FIRST_SCORES)
    rate: float = number(0.1)
    momentum: float = number(0.9)
    decay: float = number(1e-6)
    per_run: bool = flag(True)
    every_score: bool = flag(False)
    small_steps: bool = flag(False)
    task_weight: float = number(1.0)
    block_weight: float = number(0.1)  # of a block in the penalty: the paper's lambda of depth over that of width
    trains_gates = True

    def keeper(self, start: ScoresStart) -> ScoreKeeper:
        return _TrainedGatesKeeper(self, start)


class _TrainedGatesKeeper:
    """One flat vector for all units, so that a step is a handful of operations whatever the number of groups."""

    reads_steps = True

    def __init__(self, policy: TrainedGates, start: ScoresStart) -> None:
        self._policy, self._gate, self._rng = policy, start.gate, start.rng
        first, blocks = policy.first.scores(start.network, start.rng), start.network.prices.space.blocks
        self._units = {name: len(values) for name, values in first.items()}
        self._s = torch.from_numpy(np.concatenate(list(first.values()))).float()
        self._velocity = torch.zeros_like(self._s)
        self._noise = torch.full_like(self._s, 0.5)
        self._beta = torch.ones_like(self._s)
        widths = {name: count for name, count in self._units.items() if name not in blocks}
        self._weights = {**policy.penalty.weight(widths), **dict.fromkeys(blocks, policy.block_weight)}
        self._weight = torch.zeros_like(self._s)  # of every unit in the penalty, in this epoch
        self._strength, self._hardness, self._rate, self._substeps = 0.0, 0.0, policy.rate, 1
        self._live_at = torch.arange(0)  # of the live units in the flat vector
        self._slices = dict.fromkeys(self._units, slice(0, 0))  # of every group among the live units
        self._values: Tensor | None = None
        self.scales_gates = self._gate.scales

    def begin(self, epoch: EpochStart) -> None:
        device = epoch.device
        self._strength, self._hardness = epoch.strength, epoch.hardness
        pace = epoch.pace if self._policy.per_run else 1.0
        self._substeps = math.ceil(pace) if self._policy.small_steps else 1
        self._rate = self._policy.rate * pace / self._substeps
        self._beta = torch.from_numpy(np.concatenate([epoch.beta[name] for name in self._units])).float().to(device)
        live = np.concatenate([epoch.live[name] for name in self._units])
        self._live_at = torch.from_numpy(np.flatnonzero(live)).to(device)
        index = LiveIndex({name: epoch.live[name] for name in self._units})
        self._slices = {name: index.slice(name) for name in self._units}
        skipped = frozenset[str]() if self._policy.every_score else epoch.inactive
        weights = [0.0 if name in skipped else self._weights[name] for name in self._units]
        self._weight = torch.from_numpy(np.repeat(weights, list(self._units.values()))).float().to(device)
        self._s, self._velocity, self._noise = self._s.to(device), self._velocity.to(device), self._noise.to(device)
        self._renew()

    def step(self, signals: Signals, lr_frac: float) -> None:
        pull = signals.pull()
        if not torch.isfinite(pull).all():  # an overflow under mixed precision says nothing about the units
            return
        s, beta, at, policy = self._s, self._beta, self._live_at, self._policy
        pull_on_gates = pull / self._live_values().clamp_min(1e-6)
        sharpness = self._draw_sharpness
        for _ in range(self._substeps):
            p = torch.sigmoid(sharpness * s)
            gradient = self._strength * self._weight * sharpness * p * (1 - p) + policy.decay * s
            slope = self._gate.slope(s[at], beta[at], self._noise[at]) * (1 - self._hardness)
            gradient[at] += policy.task_weight * pull_on_gates * slope
            self._velocity.mul_(policy.momentum).add_(gradient)
            s.sub_(self._velocity, alpha=self._rate * lr_frac)
        self._renew()

    def drift(self, steps: int, lr_frac: float) -> None:
        """The penalty alone, in closed form (Eq. Drift): z = beta s, 2 z + 2 sinh z falls by a beta^2."""
        beta, s = self._draw_sharpness.double().numpy(), self._s.double().numpy()
        travelled = steps * self._substeps * self._rate * lr_frac / (1 - self._policy.momentum)
        s = s * (1 - travelled * self._policy.decay)
        pushed = travelled * self._strength * self._weight.double().numpy() * beta**2
        moved = _inverse_f(_f(np.clip(beta * s, -_SATURATED, _SATURATED)) - pushed) / beta
        self._s = torch.from_numpy(np.where(np.abs(beta * s) < _SATURATED, moved, s)).float()
        self._values = None

    @property
    def _draw_sharpness(self) -> Tensor:
        """k of the probability sigma(k s) with which a unit is drawn, which the penalty adds up."""
        return self._beta if self._gate.sharpens_draws else torch.ones_like(self._beta)

    def finish(self) -> None: ...

    def push(self, delta: float) -> None:
        self._s.add_(delta)
        self._values = None

    def gates(self, group: str) -> Tensor | None:
        return self._live_values()[self._slices[group]] if self.scales_gates else None

    def resting_gates(self, group: str) -> Tensor | None:
        return self.gates(group)

    def _live_values(self) -> Tensor:
        if self._values is None:
            at = self._live_at
            soft = self._gate.value(self._s[at], self._beta[at], self._noise[at])
            self._values = self._hardness + (1 - self._hardness) * soft
        return self._values

    def _renew(self) -> None:
        """Forget the gate values, which have changed; a random gate gets new noise for the next step."""
        self._values = None
        if self._gate.noisy:
            noise = self._rng.random(len(self._noise), dtype=np.float32)
            self._noise = torch.from_numpy(noise).to(self._s.device)

    def scores(self, signals: Signals) -> dict[str, FloatArray]:
        flat = self._s.cpu().double().numpy()
        parts = np.split(flat, np.cumsum(list(self._units.values()))[:-1])
        return {name: part.copy() for name, part in zip(self._units, parts, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        tensors = {"s": self._s, "velocity": self._velocity, "noise": self._noise, "beta": self._beta}
        return {**tensors, "hardness": self._hardness}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        device = self._s.device
        self._s, self._velocity, self._noise, self._beta = (
            state[name].to(device) for name in ("s", "velocity", "noise", "beta")
        )
        self._hardness = float(state["hardness"])
        self._values = None


def _f(z: FloatArray) -> FloatArray:
    f: FloatArray = 2 * z + 2 * np.sinh(z)
    return f


def _inverse_f(y: FloatArray) -> FloatArray:
    """The z at which 2 z + 2 sinh z is y, by Newton's method from above.

    >>> _inverse_f(_f(np.array([-30.0, -0.1, 0.0, 3.0]))).round(9).tolist()
    [-30.0, -0.1, 0.0, 3.0]
    """
    z = np.arcsinh(np.abs(y) / 2)
    for _ in range(60):
        z = z - (_f(z) - np.abs(y)) / (2 + 2 * np.cosh(z))
    inverse: FloatArray = np.sign(y) * z
    return inverse
