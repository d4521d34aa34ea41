"""Importance: how much the loss depends on a unit, measured by the square of the task's pull on its gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.control.scores import EpochStart, OpenGates, ScoreKeeper, ScoresStart
from meristem.control.text_settings import number, whole_number
from meristem.errors import MeristemError
from meristem.gating.interfaces import Signals
from meristem.space.arrays import BoolArray, FloatArray, IntArray
from meristem.space.live_index import LiveIndex


@dataclass(frozen=True)
class Importance:
    """A unit's score is the mean square of the task's pull on its gate (Eq. Importance); nothing is scaled.

    The sign of the pull averages out where a norm follows: scaling all inputs of a layer together does nothing. Its
    square says how much the loss depends on the unit. ``memory`` is the weight of the past at the end of an epoch.
    Units younger than ``grace_epochs`` are compared with those of their own age: a unit that came in last has learned
    less, whatever it will be worth, and would be the first to go.
    """

    memory: float = number(0.5)
    grace_epochs: int = whole_number(3)
    trains_gates = False

    def __post_init__(self) -> None:
        if not 0 <= self.memory < 1:
            raise MeristemError(f"memory must be a share of less than 1, got {self.memory}")
        if self.grace_epochs < 0:
            raise MeristemError(f"grace_epochs must be a number of epochs, at least 0, got {self.grace_epochs}")

    def keeper(self, start: ScoresStart) -> ScoreKeeper:
        return _ImportanceKeeper(self, {name: len(values) for name, values in start.network.masks.items()})


class _ImportanceKeeper(OpenGates):
    reads_steps = True

    def __init__(self, policy: Importance, units: Mapping[str, int]) -> None:
        self._policy = policy
        self._scores: dict[str, FloatArray] = {name: np.zeros(count) for name, count in units.items()}
        self._ages = {name: np.zeros(count, dtype=np.int64) for name, count in units.items()}
        self._live: dict[str, BoolArray] = {name: np.zeros(count, dtype=np.bool_) for name, count in units.items()}
        self._device = torch.device("cpu")
        self._sum: Tensor | None = None  # of squared pulls over the steps of this epoch
        self._steps = torch.zeros(())

    def begin(self, epoch: EpochStart) -> None:
        self._live, self._device, self._sum, self._steps = dict(epoch.live), epoch.device, None, torch.zeros(())

    def step(self, signals: Signals, lr_frac: float) -> None:
        pull = signals.pull()
        if self._sum is None:
            self._sum, self._steps = torch.zeros_like(pull), torch.zeros((), device=pull.device)
        # A step that overflowed (fp16) says nothing about the units. Kept on the device: nothing waits for the answer.
        finite = torch.isfinite(pull).all()
        self._sum.add_(torch.where(finite, pull, 0.0).square())
        self._steps += finite

    def finish(self) -> None:
        if self._sum is None or not self._steps:
            return
        means = (self._sum / self._steps).cpu().double().numpy()  # not every device knows double precision
        memory, index = self._policy.memory, LiveIndex(self._live)
        for name, mask in self._live.items():
            mean = means[index.slice(name)]
            old, seen = self._scores[name][mask], self._ages[name][mask] > 0
            self._scores[name][mask] = np.where(seen, memory * old + (1 - memory) * mean, mean)
            self._ages[name] += mask
        self._sum = None

    def scores(self, signals: Signals) -> dict[str, FloatArray]:
        grace_epochs = self._policy.grace_epochs
        return {
            name: fair_to_young(values, self._live[name], np.minimum(self._ages[name], grace_epochs))
            for name, values in self._scores.items()
        }

    def state_dict(self) -> dict[str, Any]:
        return {"scores": self._scores, "ages": self._ages, "sum": self._sum, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._scores, self._ages = dict(state["scores"]), dict(state["ages"])
        self._sum = None if state["sum"] is None else state["sum"].to(self._device)
        self._steps = state["steps"].to(self._device)


def fair_to_young(importance: FloatArray, live: BoolArray, ages: IntArray) -> FloatArray:
    """The importance with live units of every age scaled to the mean of the oldest: each competes with its own age.

    >>> fair_to_young(np.array([4.0, 8.0, 0.1, 0.3]), np.ones(4, bool), np.array([2, 2, 1, 1])).tolist()
    [4.0, 8.0, 3.0, 9.0]
    """
    fair = importance.copy()
    live_ages = np.unique(ages[live])
    if len(live_ages) < 2:
        return fair
    oldest_mean = importance[live & (ages == live_ages[-1])].mean()
    for age in live_ages[:-1]:
        cohort = live & (ages == age)
        mean = importance[cohort].mean()
        if mean > 0 and oldest_mean > 0:
            fair[cohort] *= oldest_mean / mean
    return fair
