"""Orders: which units are preferred to which, from their importance to one order over all groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from meristem.control.fit_budget import in_stages
from meristem.control.text_settings import number
from meristem.space.arrays import BoolArray, FloatArray, IntArray
from meristem.space.space import Stage

_FLOOR = 1e-30
_LAST = 1e6  # taken off the preference of what shall come in only when nothing else is left


@dataclass(frozen=True)
class UnitStatus:
    """What an order looks at: the importance of every unit, which are live, which ever were, and what a unit costs.

    The blocks of a stage compete as the units of a group do. ``multipliers`` are the proportions of groups; a group
    without one counts with 1. ``factors`` says of how many groups a dimension is the product, see `Space`. About
    ``ungated`` groups the importance says nothing, see `Space` too.
    """

    importance: Mapping[str, FloatArray]
    live: Mapping[str, BoolArray]
    lived: Mapping[str, BoolArray]
    prices: Mapping[str, float]
    stages: tuple[Stage, ...] = ()
    multipliers: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, int] = field(default_factory=dict)
    ungated: frozenset[str] = frozenset()

    def groups(self) -> Iterator[tuple[str, FloatArray, BoolArray, BoolArray]]:
        """Name, importance, live and lived of every group that has units of its own."""
        blocks = {block.group for stage in self.stages for block in stage.blocks}
        for name, values in self.importance.items():
            if name not in blocks:
                yield name, values, self.live[name], self.lived[name]

    def blocks(self, stage: Stage) -> tuple[list[str], FloatArray, BoolArray, BoolArray]:
        """The same of the blocks of a stage: their groups, and one entry for each."""
        names = [block.group for block in stage.blocks]
        importance, live, lived = (
            np.concatenate([of[name] for name in names]) for of in (self.importance, self.live, self.lived)
        )
        return names, importance, live, lived


class Order(Protocol):
    """A rule of preference: the higher, the sooner a unit lives.

    ``uses_prices``: it looks at what units cost. ``keeps_proportions``: widths follow from the method's proportions.
    """

    @property
    def uses_prices(self) -> bool: ...

    @property
    def keeps_proportions(self) -> bool: ...

    def preference(self, status: UnitStatus) -> dict[str, FloatArray]: ...


@dataclass(frozen=True)
class InStep:
    """All groups grow in the same proportions; importance decides which units of a group live.

    >>> all_live = {"a": np.ones(2, bool)}
    >>> InStep().preference(UnitStatus({"a": np.array([3.0, 9.0])}, all_live, all_live, {}))["a"].tolist()
    [-0.5, 0.0]
    """

    uses_prices = False
    keeps_proportions = True

    def preference(self, status: UnitStatus) -> dict[str, FloatArray]:
        preference = {}
        for name, values, live, lived in status.groups():
            preference[name] = np.empty(len(values))
            factors = status.factors.get(name, 1)
            step = 1 / (len(values) ** factors * status.multipliers.get(name, 1.0))
            preference[name][_ranked(values, live, lived)] = -(np.arange(len(values)) ** factors) * step
        ordered = {}
        for stage in status.stages:
            names, values, live, lived = status.blocks(stage)
            ordered[stage] = [names[index] for index in _ranked(values, live, lived)]
        return {**preference, **in_stages(ordered)}


@dataclass(frozen=True)
class ImportancePerPrice:
    """log(importance / price) of every unit: groups that matter more for their price become wider (Eq. Search).

    A live unit counts with its own importance. An absent one counts with what it would get if the group's
    importance were shared by one unit more, by two more, and so on: the more of them come in, the less each is
    expected to add. Live units are preferred by ``loyalty`` (a factor): they go when the plan comes down or when they
    are as good as dead, not because others might be better, since swapping units every epoch destroys training. In one
    epoch a group grows by at most ``pace`` (a factor) as long as others can still grow: the importance of few units is
    noisy.
    """

    loyalty: float = number(1000.0)
    pace: float = number(2.0)
    uses_prices = True
    keeps_proportions = False

    def preference(self, status: UnitStatus) -> dict[str, FloatArray]:
        preference = {}
        for name, values, live, lived in status.groups():
            preference[name] = self._log_value(values, live, lived) - np.log(status.prices[name])
        preference.update(_as_the_others(status, preference))
        typical = _typical_block(status)
        for stage in status.stages:
            names, values, live, lived = status.blocks(stage)
            for name, worth in zip(names, self._log_value(values, live, lived, stage.fixed, typical), strict=True):
                preference[name] = np.array([worth - np.log(status.prices[name])])
        return preference

    def _log_value(
        self, values: FloatArray, live: BoolArray, lived: BoolArray, fixed: int = 0, unknown: float = 0.0
    ) -> FloatArray:
        """The logarithm, before the price; ``fixed`` others of the same kind are always live.

        ``unknown`` is the importance that all of them together are taken to have when none is live.
        """
        width = int(live.sum())
        worth: FloatArray = np.log(np.maximum(values, _FLOOR)) + np.log(self.loyalty)
        absent = _absent_order(values, live, lived)
        count = np.arange(1, len(absent) + 1)
        total = max(float(values[live].sum()) if width else unknown, _FLOOR)
        size = fixed + width
        worth[absent] = np.log(total / (width + count)) - _LAST * (size + count > max(2.0, self.pace * size))
        return worth


def _as_the_others(status: UnitStatus, preference: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The preference of groups without importance: they get the share of units that all others together get."""
    others = [values for name, values in preference.items() if name not in status.ungated]
    if not others:
        return {}
    ordered = np.sort(np.concatenate(others))[::-1]
    alike = {}
    for name, values, live, lived in status.groups():
        if name in status.ungated:
            places = (np.arange(len(values)) + 0.5) / len(values) * len(ordered)
            alike[name] = np.empty(len(values))
            alike[name][_ranked(values, live, lived)] = ordered[places.astype(int)]
    return alike


def _typical_block(status: UnitStatus) -> float:
    """The importance of a live block, or, while there is none, of a live group as a whole."""
    blocks = [values[live] for _, values, live, _ in map(status.blocks, status.stages)]
    groups = [float(values[live].sum()) for _, values, live, _ in status.groups()]
    live_blocks = np.concatenate(blocks) if blocks else np.zeros(0)
    return float(live_blocks.mean()) if len(live_blocks) else float(np.mean(groups)) if groups else 0.0


def _ranked(values: FloatArray, live: BoolArray, lived: BoolArray) -> IntArray:
    """Live units by their importance, then absent ones."""
    return np.concatenate([_by_importance(values, live), _absent_order(values, live, lived)])


def _by_importance(values: FloatArray, mask: BoolArray) -> IntArray:
    units = np.flatnonzero(mask)
    return units[np.argsort(-values[units], kind="stable")]


def _absent_order(values: FloatArray, live: BoolArray, lived: BoolArray) -> IntArray:
    """Absent units in the order in which they get their chance: those that never lived, then by their importance."""
    return np.concatenate([np.flatnonzero(~live & ~lived), _by_importance(values, ~live & lived)])
