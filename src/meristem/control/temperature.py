"""Temperatures: how stiff the gate of every unit is, epoch by epoch (Eq. Temperature)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from meristem.control.text_settings import number
from meristem.space.arrays import FloatArray


class Temperature(Protocol):
    """beta of every unit (Eq. Temperature), from the epochs in which it was drawn, those finished and those planned."""

    def beta(self, drawn: FloatArray, epoch: int, epochs: int, lr_frac: float) -> FloatArray: ...


@dataclass(frozen=True)
class PerUnit:
    """beta = start * gamma^t with t the epochs this unit was live, gamma = final^(1 / epochs): the paper's rule.

    >>> PerUnit().beta(np.array([0.0, 10.0]), 10, 10, 1.0).round(6).tolist()
    [1.0, 100.0]
    """

    start: float = 1.0
    final: float = number(100.0)

    def beta(self, drawn: FloatArray, epoch: int, epochs: int, lr_frac: float) -> FloatArray:
        beta: FloatArray = self.start * self.final ** (drawn / epochs)
        return beta


@dataclass(frozen=True)
class Global:
    """One temperature for all units: t is the epoch."""

    start: float = 1.0
    final: float = number(100.0)

    def beta(self, drawn: FloatArray, epoch: int, epochs: int, lr_frac: float) -> FloatArray:
        return np.full(drawn.shape, self.start * self.final ** (epoch / epochs))


@dataclass(frozen=True)
class Decayed:
    """Per unit, with gamma decaying towards 1 with the learning rate: beta = start * prod of 1 + (gamma - 1) lr / lr0.

    ``lr_frac`` is the mean of lr / lr0 over the epochs so far.
    """

    start: float = 1.0
    final: float = number(100.0)

    def beta(self, drawn: FloatArray, epoch: int, epochs: int, lr_frac: float) -> FloatArray:
        gamma = self.final ** (1.0 / epochs)
        beta: FloatArray = self.start * (1.0 + (gamma - 1.0) * lr_frac) ** drawn
        return beta


# The names by which a method's text chooses one.
TEMPERATURES: Mapping[str, Temperature] = {"unit": PerUnit(), "global": Global(), "decayed": Decayed()}
