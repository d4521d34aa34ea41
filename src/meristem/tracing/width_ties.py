"""Groups that are one width for the code, though no label says so.

``torch.zeros_like(x)`` is a constant, which fits any units. What is then written into it, or added to it, must be as
wide as ``x``: each of the two fails alone, and both together do not. Their units are united, first with first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meristem.space.arrays import IntArray
from meristem.tracing.grouping import Grouping


def tie_widths(grouping: Grouping, blamed: str, fails: Callable[[Sequence[str]], bool]) -> bool:
    """Unite a group that fails with as few others of as many units as make it pass; whether there are such.

    ``fails`` says whether the model fails when the named groups, and no others, are reduced in the same way.
    """
    units = next(group.units for group in grouping.groups if group.name == blamed)
    others = [group.name for group in grouping.groups if group.units == units and group.name != blamed]
    if not others or fails([blamed, *others]):
        return False
    needed = _fewest(others, lambda names: not fails([blamed, *names]))
    labels = grouping.observations.labels
    for name in needed:
        labels.unions.append((_units(grouping, blamed), _units(grouping, name)))
    return bool(needed)


def _fewest(names: list[str], passes: Callable[[list[str]], bool]) -> list[str]:
    """Those names without any of which it does not pass.

    >>> _fewest(list("abcdefg"), lambda left: "b" in left and "f" in left)
    ['b', 'f']
    """
    size = len(names)
    while size:
        at = 0
        while at < len(names):
            rest = names[:at] + names[at + size :]
            if passes(rest):
                names = rest
            else:
                at += size
        size //= 2
    return names


def _units(grouping: Grouping, name: str) -> IntArray:
    """One label of every unit of a group, in order."""
    labels = np.flatnonzero(grouping.labels_of([name]))
    _, first = np.unique(grouping.unit_of[labels], return_index=True)
    found: IntArray = labels[first]
    return found
