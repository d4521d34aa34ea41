"""From recorded labels to units: which labels are one thing, which are pinned and why, what each is a product of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meristem.space.arrays import IntArray
from meristem.tracing.labels import Labels


@dataclass
class Resolution:
    """``root`` maps a label to its class, the smallest of the labels that are one thing.

    A composite class is the product of a ``row`` and a ``column`` class; a leaf has 0 there. A leaf that is not pinned
    is a unit.

    >>> from meristem.tracing.labels import Dim
    >>> labels = Labels()
    >>> dim = Dim(4, labels.fresh(4))
    >>> heads, size = labels.split(dim, [2, 2])
    >>> labels.pin(size, "the size of a head is fixed")
    >>> resolution = resolve(labels)
    >>> [leaves.tolist() for leaves in resolution.leaves(dim.ids)]
    [[5, 5, 6, 6]]
    >>> resolution.reasons[resolution.pinned[size.ids[0]]]
    'the size of a head is fixed'
    """

    root: IntArray
    row: IntArray
    column: IntArray
    pinned: IntArray  # per class: index into reasons, or 0 when free
    reasons: list[str]
    _leaves_by_id: dict[int, tuple[IntArray, list[IntArray]]] = field(default_factory=dict)  # arrays are kept alive

    def leaves(self, ids: IntArray) -> list[IntArray]:
        """For every position the units that own it, one array per factor; 0 where there is none."""
        if id(ids) not in self._leaves_by_id:
            self._leaves_by_id[id(ids)] = (ids, self._leaves(ids))
        return self._leaves_by_id[id(ids)][1]

    def pin(self, classes: IntArray, reason: str) -> None:
        """Pin classes that were free so far."""
        self.reasons.append(reason)
        self.pinned[classes] = len(self.reasons) - 1
        self._leaves_by_id.clear()

    def _leaves(self, ids: IntArray) -> list[IntArray]:
        columns = [self.root[np.maximum(ids, 0)]]
        for _ in range(8):
            if not any((self.row[column] > 0).any() for column in columns):
                break
            deeper: list[IntArray] = []
            for column in columns:
                composite = self.row[column] > 0
                deeper.append(np.where(composite, self.row[column], column))
                if composite.any():
                    deeper.append(np.where(composite, self.column[column], 0))
            columns = deeper
        free = [np.where(self.pinned[column] > 0, 0, column) for column in columns]
        return [column for column in free if (column > 0).any()]


def resolve(labels: Labels) -> Resolution:
    """Close the recorded unions under factoring: equal products have equal factors."""
    root = np.arange(labels.count, dtype=np.int64)
    first = _concat([union[0] for union in labels.unions])
    second = _concat([union[1] for union in labels.unions])
    cells = _concat([factoring.cells for factoring in labels.factorings])
    rows = _concat([factoring.rows for factoring in labels.factorings])
    columns = _concat([factoring.columns for factoring in labels.factorings])
    _join(root, first, second)
    while len(cells):
        order = np.argsort(root[cells], kind="stable")
        same = np.flatnonzero(root[cells][order][1:] == root[cells][order][:-1])
        before, after = order[same], order[same + 1]
        pairs = np.concatenate([rows[before], columns[before]]), np.concatenate([rows[after], columns[after]])
        moved = root[pairs[0]] != root[pairs[1]]
        if not moved.any():
            break
        _join(root, pairs[0][moved], pairs[1][moved])
    row = np.zeros(labels.count, dtype=np.int64)
    column = np.zeros(labels.count, dtype=np.int64)
    row[root[cells]], column[root[cells]] = root[rows], root[columns]
    resolution = Resolution(root, row, column, np.zeros(labels.count, dtype=np.int64), [""])
    _pin(resolution, labels)
    return resolution


def _pin(resolution: Resolution, labels: Labels) -> None:
    pinned, numbers = resolution.pinned, {"": 0}
    for pin in labels.pins:
        if pin.reason not in numbers:
            numbers[pin.reason] = len(resolution.reasons)
            resolution.reasons.append(pin.reason)
        classes = resolution.root[pin.ids]
        free = classes[pinned[classes] == 0]
        pinned[free] = numbers[pin.reason]
    pinned[0] = 0
    _pin_cycles(resolution)
    composite = np.flatnonzero(resolution.row > 0)
    while True:  # a pinned product pins its factors
        products = composite[pinned[composite] > 0]
        changed = False
        for factor in (resolution.row[products], resolution.column[products]):
            free = pinned[factor] == 0
            if free.any():
                pinned[factor[free]] = pinned[products[free]]
                changed = True
        if not changed:
            return


def _pin_cycles(resolution: Resolution) -> None:
    """A label that is a product of itself cannot be understood: pin it and treat it as a leaf."""
    unsettled = resolution.row > 0
    while True:  # peel off products whose factors are settled; what is left lies on or above a cycle
        settled = unsettled & ~unsettled[resolution.row] & ~unsettled[resolution.column]
        if not settled.any():
            break
        unsettled = unsettled & ~settled
    cyclic = np.flatnonzero(unsettled)
    if len(cyclic):
        resolution.reasons.append("it is reshaped into itself in a way that is not understood")
        resolution.pinned[cyclic] = len(resolution.reasons) - 1
        for factor in (resolution.row[cyclic], resolution.column[cyclic]):
            free = resolution.pinned[factor] == 0
            resolution.pinned[factor[free]] = len(resolution.reasons) - 1
        resolution.row[cyclic] = resolution.column[cyclic] = 0


def _join(root: IntArray, first: IntArray, second: IntArray) -> None:
    """Union of many pairs at once, in place: hook the larger root below the smaller, then jump pointers."""
    while len(first):
        one, two = root[first], root[second]
        apart = one != two
        if not apart.any():
            return
        first, second = one[apart], two[apart]
        np.minimum.at(root, np.maximum(first, second), np.minimum(first, second))
        while True:
            above = root[root]
            if (above == root).all():
                break
            root[:] = above


def _concat(arrays: list[IntArray]) -> IntArray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
