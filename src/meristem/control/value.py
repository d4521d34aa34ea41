"""Which units are preferred to which: from the evidence for live and absent units to one order for all groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from meristem.gate import BoolArray, FloatArray
from meristem.space.axis import IntArray

_FLOOR = 1e-30
_LAST = 1e6  # taken off the preference of what shall come in only when nothing else is left


@dataclass(frozen=True)
class Standing:
    """Where all units stand: the evidence for each, which are live, which ever were, and what a unit costs."""

    evidence: Mapping[str, FloatArray]
    live: Mapping[str, BoolArray]
    lived: Mapping[str, BoolArray]
    prices: Mapping[str, float]


class Value(Protocol):
    """A rule of preference: the higher, the sooner a unit lives."""

    def preference(self, standing: Standing) -> dict[str, FloatArray]: ...


@dataclass(frozen=True)
class InStep:
    """All groups keep the same share of their units; evidence decides which units of a group they are.

    >>> all_live = {"a": np.ones(2, bool)}
    >>> InStep().preference(Standing({"a": np.array([3.0, 9.0])}, all_live, all_live, {}))["a"].tolist()
    [-0.5, 0.0]
    """

    def preference(self, standing: Standing) -> dict[str, FloatArray]:
        found = {}
        for name, values in standing.evidence.items():
            live = standing.live[name]
            order = np.concatenate([_by_evidence(values, live), _absent_order(values, live, standing.lived[name])])
            found[name] = np.empty(len(values))
            found[name][order] = -np.arange(len(values)) / len(values)
        return found


@dataclass(frozen=True)
class Worth:
    """log(evidence / price) of every unit: groups that matter more for their price become wider (Eq. Worth).

    A live unit counts with its own evidence. An absent one counts with what it would get if the group's evidence were
    shared by one unit more, by two more, and so on: the more of them come in, the less each is expected to add. Live
    units are preferred by ``loyalty`` (a factor): they go when the plan comes down or when they are as good as dead,
    not because others might be better, since swapping units every epoch destroys training. In one epoch a group grows
    by at most ``pace`` (a factor) as long as others can still grow: the evidence of few units is noisy.
    """

    loyalty: float = 1000.0
    pace: float = 2.0

    def preference(self, standing: Standing) -> dict[str, FloatArray]:
        found = {}
        for name, values in standing.evidence.items():
            mask = standing.live[name]
            width = int(mask.sum())
            worth = np.log(np.maximum(values, _FLOOR)) + np.log(self.loyalty)
            absent = _absent_order(values, mask, standing.lived[name])
            count = np.arange(1, len(absent) + 1)
            total = max(float(values[mask].sum()), _FLOOR)
            worth[absent] = np.log(total / (width + count)) - _LAST * (width + count > max(2.0, self.pace * width))
            found[name] = worth - np.log(standing.prices[name])
        return found


def _by_evidence(values: FloatArray, mask: BoolArray) -> IntArray:
    units = np.flatnonzero(mask)
    return units[np.argsort(-values[units], kind="stable")]


def _absent_order(values: FloatArray, live: BoolArray, lived: BoolArray) -> IntArray:
    """Absent units in the order in which they get their chance: those that never lived, then by their evidence."""
    return np.concatenate([np.flatnonzero(~live & ~lived), _by_evidence(values, ~live & lived)])
