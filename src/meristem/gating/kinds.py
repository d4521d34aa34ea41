"""Kinds of gates: what a live unit is multiplied with, from its score and its temperature (Eq. Gate)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import torch
from torch import Tensor

_LOW, _HIGH = -0.1, 1.1  # of the stretched concrete gate


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

    @property
    def sharpens_draws(self) -> bool:
        """Whether a unit is drawn with sigma(beta s), as the gate is, or with sigma(s) at every temperature."""
        ...

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor: ...

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Sigmoid:
    """g = sigma(beta s), the paper's gate."""

    scales: bool = True
    noisy: bool = False
    sharpens_draws = True

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return torch.sigmoid(beta * score)

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        g = torch.sigmoid(beta * score)
        return beta * g * (1 - g)


@dataclass(frozen=True)
class Concrete:
    """The binary concrete relaxation: g = sigma((s + logit(u)) / tau), u uniform, tau = 1 / beta falling to 0.

    The temperature makes the gate more nearly 0 or 1, not more often 1: it is above one half with probability sigma(s)
    whatever beta is. So that is what its unit is drawn with, and what the penalty acts on.
    """

    scales: bool = True
    noisy: bool = True
    sharpens_draws = False

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return torch.sigmoid((score + torch.logit(noise, eps=1e-6)) * beta)

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        g = self.value(score, beta, noise)
        return beta * g * (1 - g)


@dataclass(frozen=True)
class HardConcrete:
    """The concrete relaxation stretched to [-0.1, 1.1] and cut to [0, 1], so that gates can be exactly 0 or 1.

    Its temperature stays at ``tau``: it is not meant to become hard by itself (Louizos et al., ICLR 2018). With a noise
    of one half it is the median, which is above 0 if and only if a draw is more likely to be above 0 than not.
    """

    tau: float = 2 / 3
    scales: bool = True
    noisy: bool = True
    sharpens_draws = False

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return (_LOW + (_HIGH - _LOW) * self._soft(score, noise)).clamp(0, 1)

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        soft = self._soft(score, noise)
        stretched = _LOW + (_HIGH - _LOW) * soft
        inside = (stretched > 0) & (stretched < 1)
        return inside * (_HIGH - _LOW) / self.tau * soft * (1 - soft)

    def chance(self, score: Tensor) -> Tensor:
        """The probability that a draw is above 0."""
        return torch.sigmoid(score - self.tau * math.log(-_LOW / _HIGH))

    def _soft(self, score: Tensor, noise: Tensor) -> Tensor:
        return torch.sigmoid((score + torch.logit(noise, eps=1e-6)) / self.tau)


@dataclass(frozen=True)
class Open:
    """Forward value 1, the slope of sigma: a live unit is used in full from its first step on."""

    scales: bool = False
    noisy: bool = False
    sharpens_draws = True

    def value(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return torch.ones_like(score)

    def slope(self, score: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return Sigmoid().slope(score, beta, noise)


# The names by which a method's text chooses one.
GATE_KINDS: Mapping[str, GateKind] = {
    "sigmoid": Sigmoid(),
    "gumbel": Concrete(),
    "hard-concrete": HardConcrete(),
    "open": Open(),
}


class GatePlacement(Enum):
    """Where a gate multiplies."""

    READ = "read"  # at the weights that read the unit: the default
    FILTER = "filter"  # at the filter that makes the unit: the paper's placement


PLACEMENTS: Mapping[str, GatePlacement] = {placement.value: placement for placement in GatePlacement}
