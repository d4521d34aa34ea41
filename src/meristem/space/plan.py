"""A plan: the frozen decision for one step of structure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from meristem.errors import PlanError
from meristem.space.arrays import BoolArray, IntArray
from meristem.space.space import Group, Space


@dataclass(frozen=True)
class Change:
    """What happens to the units of one group. Units are named by their index in the full model."""

    keep: tuple[int, ...]
    grow: tuple[int, ...] = ()
    restore: tuple[int, ...] = ()
    prune: tuple[int, ...] = ()

    @property
    def live(self) -> tuple[int, ...]:
        """The units that are live afterwards."""
        return tuple(sorted(self.keep + self.grow + self.restore))


@dataclass(frozen=True)
class Plan:
    """The change of every group it names; groups it does not name stay as they are."""

    changes: Mapping[str, Change]

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", MappingProxyType(dict(self.changes)))


def plan_to(
    space: Space,
    target: Mapping[str, Iterable[int]],
    live: Mapping[str, BoolArray],
    lived: Mapping[str, BoolArray],
) -> Plan:
    """The plan that makes exactly ``target[group]`` live, from what is ``live`` now and has ever ``lived``."""
    changes = {}
    for name, units in target.items():
        if name not in space.groups:
            raise PlanError(f"the space has no group {name!r}; it has {_some(space.groups)}")
        wanted = np.zeros(space.groups[name].units, dtype=np.bool_)
        chosen = _whole_numbers(name, units)
        if len(chosen) < space.groups[name].min_units:
            raise PlanError(_too_few(space.groups[name], len(chosen)))
        if len(chosen) and (chosen[0] < 0 or chosen[-1] >= len(wanted)):
            raise PlanError(f"group {name!r} has units 0 to {len(wanted) - 1}, got {chosen[0]} to {chosen[-1]}")
        wanted[chosen] = True
        changes[name] = Change(
            keep=_indices(wanted & live[name]),
            grow=_indices(wanted & ~live[name] & ~lived[name]),
            restore=_indices(wanted & ~live[name] & lived[name]),
            prune=_indices(~wanted & live[name]),
        )
    return Plan(changes)


def _too_few(group: Group, live: int) -> str:
    would = f"would have {live}" if live else "would be empty"
    least = "one" if group.min_units == 1 else str(group.min_units)
    return f"group {group.name!r} {would}; at least {least} of its {group.units} units must stay live"


def _whole_numbers(group: str, units: Any) -> IntArray:
    try:
        listed = list(units)
        fine = all(isinstance(unit, (int, np.integer)) and not isinstance(unit, bool) for unit in listed)
    except TypeError:
        fine = False
    if not fine:
        raise PlanError(f"the units of group {group!r} must be whole numbers, e.g. [0, 2, 5]; got {units!r}")
    return np.asarray(sorted(set(listed)), dtype=np.int64)


def _indices(mask: BoolArray) -> tuple[int, ...]:
    return tuple(int(index) for index in np.flatnonzero(mask))


def _some(names: Iterable[str], most: int = 6) -> str:
    every = list(names)
    return ", ".join(every[:most]) + (f", ... ({len(every)} in all)" if len(every) > most else "")
