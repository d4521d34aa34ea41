"""Where live units stand: among the live ones of their group, and in one flat list of all groups."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meristem.space.arrays import BoolArray, IntArray


def live_places(mask: BoolArray) -> IntArray:
    """Return for every unit of a group how many live ones come before it; what dead units get means nothing.

    >>> live_places(np.array([True, False, True, True]))[[0, 2, 3]].tolist()
    [0, 1, 2]
    """
    return np.asarray(np.cumsum(mask) - 1, dtype=np.int64)


class LiveIndex:
    """All live units in one flat list, group after group.

    >>> index = LiveIndex({"a": np.array([True, False, True]), "b": np.array([False, True])})
    >>> index.size, index.offset("b"), index.places("a")[[0, 2]].tolist(), index.places("b")[[1]].tolist()
    (3, 2, [0, 1], [2])
    """

    def __init__(self, masks: Mapping[str, BoolArray]) -> None:
        self.size = 0
        self._offsets: dict[str, int] = {}
        self._masks = masks
        for group, mask in masks.items():
            self._offsets[group] = self.size
            self.size += int(mask.sum())

    def offset(self, group: str) -> int:
        """Return the place of the first live unit of a group."""
        return self._offsets[group]

    def slice(self, group: str) -> slice:
        """Return where the live units of a group lie in the flat list."""
        start = self._offsets[group]
        return slice(start, start + int(self._masks[group].sum()))

    def places(self, group: str) -> IntArray:
        """Return the place of every unit of a group in the flat list; what dead units get means nothing."""
        return self._offsets[group] + live_places(self._masks[group])
