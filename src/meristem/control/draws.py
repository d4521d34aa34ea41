"""Probabilities from scores, and draws from probabilities: which units of a group are proposed to live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from meristem.space.arrays import BoolArray, FloatArray


def sigmoid(x: FloatArray) -> FloatArray:
    """The logistic function, without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    small = np.exp(-np.abs(x))
    p: FloatArray = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return p


def logit(p: FloatArray | float) -> FloatArray:
    """The inverse of :func:`sigmoid`."""
    p = np.clip(np.asarray(p, dtype=np.float64), 1e-12, 1.0 - 1e-12)
    x: FloatArray = np.log(p) - np.log1p(-p)
    return x


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


# The names by which a method's text chooses one.
DRAWS: Mapping[str, Draw] = {"independent": Independent(), "even": Even(), "ranked": Ranked()}
