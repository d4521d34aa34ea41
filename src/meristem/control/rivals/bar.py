"""BAR (Lemaire et al., CVPR 2019): gates learn which units to keep while a barrier closes on the activation volume."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.distillation import Distillation
from meristem.control.first_network import FullNetwork
from meristem.control.fit_budget import fit, in_proportion
from meristem.control.method import Method, TrainingStage
from meristem.control.proportions import EVEN
from meristem.control.schedule import Schedule
from meristem.control.scores import EpochStart, OpenGates, ScoreKeeper, ScoresStart, StageTime
from meristem.control.text_settings import number
from meristem.cost.ledger import FINE_TUNE, PRE_TRAIN, PRUNE
from meristem.cost.volume import unit_volumes
from meristem.errors import MeristemError
from meristem.gating.interfaces import Signals
from meristem.gating.kinds import HardConcrete
from meristem.space.arrays import FloatArray

_GATE = HardConcrete()
_FIRST = 2.5  # the score of every unit before pruning: its median gate is 1
_KEPT = 1e6  # the score of a block: it stays if anything does
_MOMENTUM, _EPSILON = 0.9, 1e-8  # of Adam
_MEMORIES = 30.0  # how often the stage is as long as Adam's second moment remembers: 0.999 over 80 epochs of CIFAR-10


def bar(begin: float = 0.4) -> Method:
    """The comparison for pruning by learned gates: a barrier on the activation volume, a teacher beside it (BAR).

    The full network is trained for 40 % of the run; then, until 75 %, it learns with gates from what it was; units
    whose gates are shut go at once, and what is left is fine-tuned.
    """
    return Method(
        scores=VolumeGates(),
        controller=KeepOpen(),
        schedule=Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=1.0, land_at=1.0),
        proportions=EVEN,
        start=FullNetwork(),
        gate=_GATE,
        distillation=Distillation(stage=PRUNE),
        stages=(
            TrainingStage(PRE_TRAIN, until=begin),
            TrainingStage(PRUNE, until=None),
            TrainingStage(FINE_TUNE, until=1.0),
        ),
    )


@dataclass(frozen=True)
class VolumeGates:
    """Hard-concrete gates, trained by Adam on the task and on what they cost in activation volume (Eq. Volume barrier).

    ``strength`` is the authors' 1e-5, over a batch of 64, times some three million activations of a WideResNet: here
    volumes are shares. ``travel`` is the sum of Adam's rates over the stage, as of a rate of 0.001 over 80 epochs of
    CIFAR-10, so that a shorter run moves the scores as far. The authors' budget is a volume; here it is the volume of
    the network that keeps the same share of every layer at the budget that is given. Beyond ``ceiling`` the barrier
    does not rise: theirs is 1e10, after which Adam stands still for longer than the stage of a short run.
    """

    strength: float = number(0.5)
    travel: float = number(30.0)
    slope: float = number(10.0)
    tolerance: float = number(0.01)
    margin: float = number(1e-4)
    ceiling: float = number(1e3)
    trains_gates = True

    def __post_init__(self) -> None:
        if not (0 <= self.strength < math.inf and 0 < self.travel < math.inf and self.slope > 0):
            raise MeristemError(
                f"strength must be at least 0, travel and slope above 0; got {self.strength}, {self.travel} and "
                f"{self.slope}"
            )

    def keeper(self, start: ScoresStart) -> ScoreKeeper:
        return _VolumeGatesKeeper(self, start)


def sliding_budget(passed: float, target: float, slope: float = 10.0, tolerance: float = 0.01) -> float:
    """The volume that is allowed when so much of the stage has passed: from just above all of it to the target.

    >>> [round(sliding_budget(passed, 0.2), 3) for passed in (0.0, 0.5, 1.0)]
    [1.01, 0.605, 0.2]
    """
    low = 1 / (1 + math.exp(slope / 2))
    risen = (1 / (1 + math.exp(slope * (0.5 - passed))) - low) / (1 - 2 * low)
    return (1 - risen) * (1 + tolerance) + risen * target


def barrier(volume: float, lowest: float, allowed: float, ceiling: float) -> float:
    """The factor of the penalty: nothing at the lowest volume, beyond all bounds at the one that is allowed.

    >>> barrier(0.2, 0.2, 0.6, 1e3), round(barrier(0.4, 0.2, 0.6, 1e3), 3), barrier(0.6, 0.2, 0.6, 1e3)
    (0.0, 0.5, 1000.0)
    """
    share = max(0.0, (volume - lowest) / (allowed - lowest)) if allowed > lowest else float(volume > lowest)
    return min(share**2 / (1 - share), ceiling) if share < 1 else ceiling


class _VolumeGatesKeeper(OpenGates):
    """One flat vector for all units. Gates act in the stage of pruning alone; before and after it they are 1."""

    scales_gates = True

    def __init__(self, policy: VolumeGates, start: ScoresStart) -> None:
        space, self._policy, self._rng = start.network.prices.space, policy, start.rng
        self._units, self._blocks = space.full, frozenset(space.blocks)
        volumes = unit_volumes(space)
        self._volume = torch.from_numpy(np.repeat([volumes[name] for name in self._units], list(self._units.values())))
        self._volume = self._volume.float() / max(float(self._volume.sum()), 1e-12)
        even = widths_of(fit(start.network.prices, in_proportion(space, {}), start.network.caps))
        whole = sum(volumes[name] * units for name, units in self._units.items())
        self.target = sum(volumes[name] * width for name, width in even.items()) / max(whole, 1e-12)
        first = [_KEPT if name in self._blocks else _FIRST for name in self._units]
        self._s = torch.from_numpy(np.repeat(first, list(self._units.values()))).float()
        self._mean, self._square = torch.zeros_like(self._s), torch.zeros_like(self._s)
        self._noise = torch.full_like(self._s, 0.5)
        self._time, self._steps = StageTime(), 0  # of Adam
        self._at = torch.arange(0)  # of the live units in the flat vector
        self._live_units: Mapping[str, int] = dict.fromkeys(self._units, 0)

    @property
    def reads_steps(self) -> bool:
        return self._time.name == PRUNE

    def begin(self, epoch: EpochStart) -> None:
        self._time, self._live_units = epoch.stage, {name: int(epoch.live[name].sum()) for name in self._units}
        live = np.concatenate([epoch.live[name] for name in self._units])
        self._at = torch.from_numpy(np.flatnonzero(live)).to(epoch.device)
        for name in ("_s", "_mean", "_square", "_noise", "_volume"):
            setattr(self, name, getattr(self, name).to(epoch.device))
        if self.reads_steps:
            self._draw()

    def step(self, signals: Signals, lr_frac: float) -> None:
        pull, at = signals.pull(), self._at
        if not torch.isfinite(pull).all():  # an overflow under mixed precision says nothing about the units
            return
        s, noise, beta = self._s[at], self._noise[at], torch.ones(())
        chance = _GATE.chance(self._s)
        gradient = self._policy.strength * self._barrier() * self._volume * chance * (1 - chance)
        gradient[at] += pull / _GATE.value(s, beta, noise).clamp_min(1e-6) * _GATE.slope(s, beta, noise)
        self._adam(gradient)
        per_step = self._time.per_step
        self._time = StageTime(self._time.name, min(1.0, self._time.passed + per_step), per_step)
        self._draw()

    def _barrier(self) -> float:
        """The factor of the penalty now: the volume is that of the units whose median gate is not shut."""
        policy = self._policy
        volume = float((self._volume * (self._median() > 0))[self._at].sum())
        allowed = sliding_budget(self._time.passed, self.target, policy.slope, policy.tolerance)
        return barrier(volume, self.target - policy.margin, allowed, policy.ceiling)

    def _adam(self, gradient: Tensor) -> None:
        self._steps += 1
        first, second = _MOMENTUM, 1 - min(0.1, max(0.001, _MEMORIES * self._time.per_step))
        self._mean.lerp_(gradient, 1 - first)
        self._square.lerp_(gradient.square(), 1 - second)
        size = (self._square / (1 - second**self._steps)).sqrt() + _EPSILON
        rate = self._policy.travel * self._time.per_step / (1 - first**self._steps)
        self._s.sub_(rate * self._mean / size)

    def _median(self) -> Tensor:
        return _GATE.value(self._s, torch.ones(()), torch.full_like(self._s, 0.5))

    def _draw(self) -> None:
        self._noise = torch.from_numpy(self._rng.random(len(self._s), dtype=np.float32)).to(self._s.device)

    def finish(self) -> None: ...

    def gates(self, group: str) -> Tensor | None:
        return self._gates(group, self._noise)

    def resting_gates(self, group: str) -> Tensor | None:
        return self._gates(group, torch.full_like(self._noise, 0.5))

    def _gates(self, group: str, noise: Tensor) -> Tensor | None:
        if not self.reads_steps or group in self._blocks:
            return None
        start = sum(units for name, units in self._before(group))
        at = self._at[start : start + self._live_units[group]]
        return _GATE.value(self._s[at], torch.ones(()), noise[at])

    def _before(self, group: str) -> list[tuple[str, int]]:
        """The groups before this one, with their live units."""
        names = list(self._units)
        return [(name, self._live_units[name]) for name in names[: names.index(group)]]

    def scores(self, signals: Signals) -> dict[str, FloatArray]:
        flat = self._s.cpu().double().numpy()
        parts = np.split(flat, np.cumsum(list(self._units.values()))[:-1])
        return {name: part.copy() for name, part in zip(self._units, parts, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        tensors = {"s": self._s, "mean": self._mean, "square": self._square, "noise": self._noise}
        return {**tensors, "steps": self._steps, "passed": self._time.passed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("s", "mean", "square", "noise"):
            setattr(self, f"_{name}", state[name].to(self._s.device).clone())
        self._steps = int(state["steps"])
        self._time = StageTime(self._time.name, float(state["passed"]), self._time.per_step)


@dataclass(frozen=True)
class KeepOpen(Traits):
    """The full network until the last decision; then the units of highest score that fit the budget.

    Their median gates are multiplied into the weights that read them, so that nothing but the units that go changes
    what the network computes.
    """

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        if not view.last:
            return Decision(view.live)
        blocks = view.prices.space.blocks
        gates = {
            name: _GATE.value(torch.from_numpy(score), torch.ones(()), torch.full((len(score),), 0.5)).double().numpy()
            for name, score in view.scores.items()
            if name not in blocks
        }
        return Decision(fit(view.prices, view.scores, view.caps), read_scales=gates)
