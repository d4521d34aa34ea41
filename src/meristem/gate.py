"""Gates as mathematics: scores and temperatures to probabilities, draws, gate values and penalties.

Pure functions and frozen policies over numpy arrays and tensors; equation names refer to docs/equations.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def sigmoid(x: FloatArray) -> FloatArray:
    """The logistic function, without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    small = np.exp(-np.abs(x))
    found: FloatArray = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return found


def logit(p: FloatArray | float) -> FloatArray:
    """The inverse of :func:`sigmoid`."""
    p = np.clip(np.asarray(p, dtype=np.float64), 1e-12, 1.0 - 1e-12)
    found: FloatArray = np.log(p) - np.log1p(-p)
    return found


# --- what a live unit is multiplied with -------------------------------------------------------------------------


class GateKind(Protocol):
    """The value of a live unit's gate and its slope, from score ``s`` and temperature ``beta`` (Eq. Gate)."""

    @property
    def scales(self) -> bool:
        """Whether the value differs from 1, so that readers must be scaled in the forward pass."""
        ...

    @property
    def noisy(self) -> bool:
        """Whether the value is random, so that every step needs new noise."""
        ...

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor: ...

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Sigmoid:
    """g = sigma(beta s), the paper's gate."""

    scales: bool = True
    noisy: bool = False

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return torch.sigmoid(beta * score)

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        g = torch.sigmoid(beta * score)
        return beta * g * (1 - g)


@dataclass(frozen=True)
class Concrete:
    """The binary concrete relaxation: g = sigma((s + logit(u)) / tau), u uniform, tau = 1 / beta falling to 0."""

    scales: bool = True
    noisy: bool = True

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return torch.sigmoid((score + torch.logit(noise, eps=1e-6)) * beta)

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        g = self.value(score, beta, noise)
        return beta * g * (1 - g)


@dataclass(frozen=True)
class Open:
    """Forward value 1, the slope of sigma: a live unit is used in full from its first step on."""

    scales: bool = False
    noisy: bool = False

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return torch.ones_like(score)

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return Sigmoid().slope(score, beta, noise)


# --- stiffness ---------------------------------------------------------------------------------------------------


class Temperature(Protocol):
    """beta of every unit, from the epochs in which it was drawn, the epochs finished and those planned (Eq. 8)."""

    def beta(self, drawn: FloatArray, epoch: int, epochs: int, lr_frac: float) -> FloatArray: ...


@dataclass(frozen=True)
class PerUnit:
    """beta = start * gamma^t with t the epochs this unit was live, gamma = final^(1 / epochs): the paper's rule.

    >>> PerUnit().beta(np.array([0.0, 10.0]), 10, 10, 1.0).round(6).tolist()
    [1.0, 100.0]
    """

    start: float = 1.0
    final: float = 100.0

    def beta(self, drawn: FloatArray, epoch: int, epochs: int, lr_frac: float) -> FloatArray:
        found: FloatArray = self.start * self.final ** (drawn / epochs)
        return found


@dataclass(frozen=True)
class Shared:
    """One temperature for all units: t is the epoch."""

    start: float = 1.0
    final: float = 100.0

    def beta(self, drawn: FloatArray, epoch: int, epochs: int, lr_frac: float) -> FloatArray:
        return np.full(drawn.shape, self.start * self.final ** (epoch / epochs))


@dataclass(frozen=True)
class Decayed:
    """Per unit, with gamma decaying towards 1 with the learning rate: beta = start * prod of 1 + (gamma - 1) lr / lr0.

    ``lr_frac`` is the mean of lr / lr0 over the epochs so far.
    """

    start: float = 1.0
    final: float = 100.0

    def beta(self, drawn: FloatArray, epoch: int, epochs: int, lr_frac: float) -> FloatArray:
        gamma = self.final ** (1.0 / epochs)
        found: FloatArray = self.start * (1.0 + (gamma - 1.0) * lr_frac) ** drawn
        return found


# --- draws -------------------------------------------------------------------------------------------------------


class Draw(Protocol):
    """Which units of a group are proposed to live, from their probabilities."""

    def __call__(self, p: FloatArray, live: BoolArray, rng: np.random.Generator) -> BoolArray: ...


@dataclass(frozen=True)
class Independent:
    """q ~ Bern(p), each for itself: the paper's draw."""

    def __call__(self, p: FloatArray, live: BoolArray, rng: np.random.Generator) -> BoolArray:
        drawn: BoolArray = rng.random(p.shape) < p
        return drawn


@dataclass(frozen=True)
class Even:
    """The same marginals, a nearly fixed count: systematic sampling in random order.

    >>> int(Even()(np.full(10, 0.3), np.zeros(10, dtype=bool), np.random.default_rng(0)).sum())
    3
    """

    def __call__(self, p: FloatArray, live: BoolArray, rng: np.random.Generator) -> BoolArray:
        order = rng.permutation(len(p))
        edges = np.cumsum(p[order]) + rng.random()
        before = np.concatenate([[edges[0] - p[order][0]], edges[:-1]])
        drawn = np.zeros(len(p), dtype=np.bool_)
        drawn[order] = np.floor(edges) > np.floor(before)
        return drawn


@dataclass(frozen=True)
class Ranked:
    """The units whose probability is at least one half: with the exact controller, the best by score."""

    def __call__(self, p: FloatArray, live: BoolArray, rng: np.random.Generator) -> BoolArray:
        drawn: BoolArray = p >= 0.5
        return drawn


# --- the width penalty (Eq. 7) -----------------------------------------------------------------------------------


class Penalty(Protocol):
    """The factor of every unit's gate in the penalty, by group size."""

    def weight(self, units: Mapping[str, int]) -> dict[str, float]: ...


@dataclass(frozen=True)
class SumOverMeanWidth:
    """Sum of all gates divided by the mean group width: one constant for all units, so that layers grow alike."""

    def weight(self, units: Mapping[str, int]) -> dict[str, float]:
        return dict.fromkeys(units, len(units) / max(1, sum(units.values())))


@dataclass(frozen=True)
class MeanPerGroup:
    """The mean inside each group, summed over groups: narrow groups fill up first."""

    def weight(self, units: Mapping[str, int]) -> dict[str, float]:
        return {name: 1.0 / count for name, count in units.items()}


@dataclass(frozen=True)
class PlainSum:
    """The sum of all gates, as printed in the paper."""

    def weight(self, units: Mapping[str, int]) -> dict[str, float]:
        return dict.fromkeys(units, 1.0)
