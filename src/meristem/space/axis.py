"""An axis: which units own the positions of one dimension.

It is the only description of a dimension in the project. Sites, module attributes and cost terms all hold axes, so
that one function selects the live positions and one closed form counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meristem.space.arrays import BoolArray, IntArray

FREE_OF_UNITS = -1  # a position no unit owns is always there


@dataclass(frozen=True, eq=False)
class Part:
    """For every position the unit of ``group`` that owns it, or -1. A position may be owned through several parts."""

    group: str
    units: IntArray


@dataclass(frozen=True, eq=False)
class Axis:
    """A dimension of ``size`` positions. A position is live when every unit that owns it is live.

    >>> axis = Axis(6, (Part("heads", np.array([0, 0, 0, 1, 1, 1])), Part("dims", np.array([0, 1, 2, 0, 1, 2]))))
    >>> masks = {"heads": np.array([True, False]), "dims": np.array([True, False, True])}
    >>> axis.live(masks).tolist()
    [True, False, True, False, False, False]
    >>> axis.count({"heads": 1, "dims": 2}), axis.count({"heads": 0.5, "dims": 3})
    (2.0, 1.5)
    >>> print(axis)
    (2 heads)(3 dims)
    """

    size: int
    parts: tuple[Part, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.group for part in self.parts))

    @property
    def restarts(self) -> list[int]:
        """Where units start again from a lower one: at the gates of a recurrent layer, at queries, keys and values.

        >>> Axis(6, (Part("cells", np.array([0, 1, 2, 0, 1, 2])),)).restarts
        [0, 3]
        """
        starts = {0}
        for part in self.parts:
            starts.update((np.flatnonzero(np.diff(part.units) < 0) + 1).tolist())
        return sorted(starts)

    def live(self, masks: Mapping[str, BoolArray]) -> BoolArray:
        """Which positions are live under ``masks`` (one boolean per unit, per group)."""
        alive = np.ones(self.size, dtype=np.bool_)
        for part in self.parts:
            owned = part.units >= 0
            alive[owned] &= masks[part.group][part.units[owned]]
        return alive

    def owned(self, group: str | None = None) -> BoolArray:
        """Which positions belong to any unit at all, or to any unit of ``group``."""
        covered = np.zeros(self.size, dtype=np.bool_)
        for part in self.parts:
            if group is None or part.group == group:
                covered |= part.units >= 0
        return covered

    @cached_property
    def terms(self) -> tuple[tuple[float, tuple[str, ...]], ...]:
        """The closed form of :meth:`count`: pairs of a coefficient and the groups whose widths multiply it."""
        if not self.parts:
            return ((float(self.size), ()),)
        owned = np.stack([part.units >= 0 for part in self.parts])
        forms = []
        for column in np.unique(owned, axis=1).T:
            here = (owned == column[:, None]).all(axis=0)
            inside = [part for part, flag in zip(self.parts, column, strict=True) if flag]
            pairs = np.prod([len(np.unique(part.units[here])) for part in inside]) if inside else 1
            forms.append((float(here.sum() / pairs), tuple(part.group for part in inside)))
        return tuple(forms)

    def count(self, widths: Mapping[str, float]) -> float:
        """How many positions are live when each group has ``widths[group]`` live units; fractions are allowed."""
        total = 0.0
        for coefficient, groups in self.terms:
            product = coefficient
            for group in groups:
                product *= widths[group]
            total += product
        return total

    def __str__(self) -> str:
        if not self.parts:
            return str(self.size)
        if len(self.parts) == 1 and (self.parts[0].units >= 0).all():
            part = self.parts[0]
            units = len(np.unique(part.units))
            return part.group if units == self.size else f"{self.size // units} x {part.group}"
        if all((part.units >= 0).all() for part in self.parts):
            return "".join(f"({len(np.unique(part.units))} {part.group})" for part in self.parts)
        pieces = [
            f"{coefficient:g} x {' x '.join(groups)}" if groups else f"{coefficient:g}"
            for coefficient, groups in self.terms
        ]
        return " + ".join(pieces)
