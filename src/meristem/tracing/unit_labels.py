"""Labels of a model whose units are known: in a reduced copy, and in the masked reference of ``meristem.testing``.

Here a label is the set of units that own a position: a position of ``(heads x size)`` belongs to a head and to an index
inside the heads. Sets are packed into integers, so that the rules of operations work on them as on any labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meristem.space.arrays import BoolArray, IntArray
from meristem.tracing.labels import ANY, Dim, Labels


class MismatchError(ValueError):
    """Two different units would have to be the same."""


class UnitSets:
    """Sets of units packed into integers, where units are numbered 1 to ``count - 1``.

    Nearly all sets have one or two members. They are packed by arithmetic on whole arrays; larger ones are listed.

    ================================ ======================================
     integer                          set
    ================================ ======================================
     0, or less                       none
     1 to count - 1                   that unit
     (low + 1) * count + high         the pair low < high
     count + count ** 2 and more      the larger set listed at that place
    ================================ ======================================

    >>> sets = UnitSets(10)
    >>> [sets.pack(frozenset(units)) for units in ([], [7], [3, 7], [2, 3, 7], [2, 3, 8])]
    [0, 7, 47, 110, 111]
    >>> [sorted(sets.unpack(label)) for label in (-1, 0, 7, 47, 110)]
    [[], [], [7], [3, 7], [2, 3, 7]]
    >>> sets.pack_pairs(np.array([7, 3, 7, 0]), np.array([3, 7, 7, 5])).tolist()
    [47, 47, 7, 5]
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._first_listed = count + count * count
        self._listed: list[frozenset[int]] = []
        self._labels: dict[frozenset[int], int] = {}

    def at_most_one(self, labels: IntArray) -> bool:
        """Whether none of the labels packs more than one unit."""
        return bool((labels < self._count).all())

    def pack(self, units: frozenset[int]) -> int:
        if len(units) < 2:
            return next(iter(units), 0)
        if len(units) == 2:
            return (min(units) + 1) * self._count + max(units)
        if units not in self._labels:
            self._labels[units] = self._first_listed + len(self._listed)
            self._listed.append(units)
        return self._labels[units]

    def pack_pairs(self, one: IntArray, two: IntArray) -> IntArray:
        """The labels of position-wise pairs of units, either of which may be 0."""
        low, high = np.minimum(one, two), np.maximum(one, two)
        packed: IntArray = np.where((low > 0) & (low < high), (low + 1) * self._count + high, high)
        return packed

    def unpack(self, label: int) -> frozenset[int]:
        if label >= self._first_listed:
            return self._listed[label - self._first_listed]
        if label >= self._count:
            return frozenset([label // self._count - 1, label % self._count])
        return frozenset([label]) if label > 0 else frozenset()


class KnownUnitLabels(Labels):
    """Labels that are packed sets of known units. Nothing may be united, pinned or made any more.

    Where a group has one unit left, torch's broadcasting makes its dimension fit anything, and a reshape can no longer
    tell rows from columns: ``alone`` marks such units, which are left out of the labels. With ``lenient`` labels are
    followed, to know whom to blame when an operation fails, but every union is accepted.
    """

    def __init__(self, alone: BoolArray, lenient: bool) -> None:
        super().__init__()
        self._alone, self._lenient = alone, lenient
        self._sets = UnitSets(len(alone))
        self._same: dict[bytes, IntArray] = {}

    @property
    def lenient(self) -> bool:
        """Whether labels only tell whom to blame."""
        return self._lenient

    def of_positions(self, owners: Sequence[IntArray], live: BoolArray) -> IntArray | None:
        """The labels of the live positions of a dimension, from the units (one array per factor) that own it.

        Equal labels are one object, so that they are known to be equal without a look at them.
        """
        labels = self._of_positions(owners, live)
        return None if labels is None else self._same.setdefault(labels.tobytes(), labels)

    def _of_positions(self, owners: Sequence[IntArray], live: BoolArray) -> IntArray | None:
        columns = [np.where(self._alone[column[live]], 0, column[live]) for column in owners]
        columns = [column for column in columns if (column > 0).any()]
        if len(columns) <= 1:
            return columns[0] if columns else None
        if len(columns) == 2:
            return self._sets.pack_pairs(*columns)
        rows, inverse = np.unique(np.stack(columns), axis=1, return_inverse=True)
        labels = np.array([self._sets.pack(frozenset(row[row > 0].tolist())) for row in rows.T], dtype=np.int64)
        return labels[inverse.reshape(-1)]

    def units(self, ids: IntArray) -> IntArray:
        """The units in any of these labels."""
        owners: set[int] = set()
        for label in np.unique(ids[ids > 0]).tolist():
            owners |= self._sets.unpack(label)
        return np.array(sorted(owners), dtype=np.int64)

    def fresh(self, size: int) -> IntArray:
        raise MismatchError("a tensor of the model is used that was not used before")

    def pin_ids(self, ids: IntArray, reason: str) -> None:
        if len(ids) and not self._lenient:
            raise MismatchError(reason)

    def _unite_ids(self, mine: IntArray, other: IntArray, reason: str) -> None:
        if not self._lenient and ((mine != other) & (mine != ANY) & (other != ANY)).any():
            raise MismatchError("positions of different units meet")

    def cells(self, rows: IntArray, columns: IntArray) -> IntArray:
        if self._sets.at_most_one(rows) and self._sets.at_most_one(columns):
            return self._sets.pack_pairs(rows, columns)
        pairs, inverse = np.unique(np.stack([rows, columns]), axis=1, return_inverse=True)
        products = [
            self._sets.pack(self._sets.unpack(row) | self._sets.unpack(column)) for row, column in pairs.T.tolist()
        ]
        return np.array(products, dtype=np.int64)[inverse.reshape(-1)]

    def split(self, dim: Dim, sizes: Sequence[int]) -> list[Dim]:
        if dim.ids is None or len(sizes) == 1 or self._sets.at_most_one(dim.ids):
            return super().split(dim, sizes)
        first, rest = sizes[0], int(np.prod(sizes[1:]))
        rows, columns = self.factor(dim.ids.reshape(first, rest))
        return [self._dim(rows), *self.split(self._dim(columns), sizes[1:])]

    @staticmethod
    def _dim(ids: IntArray) -> Dim:
        return Dim(len(ids), ids if (ids > 0).any() else None, constant=bool((ids == ANY).all()))

    def factor(self, grid: IntArray) -> tuple[IntArray, IntArray]:
        """Row and column labels: the units that all cells of a row, or of a column, have in common."""
        if (grid < 0).any() and not self._lenient:
            raise MismatchError("a reshaped dimension is partly constant")
        sets = [[self._sets.unpack(label) for label in row] for row in grid.tolist()]
        row_sets = [frozenset.intersection(*row) for row in sets]
        column_sets = [frozenset.intersection(*column) for column in zip(*sets, strict=True)]
        if grid.shape == (1, 1):  # which factor a lone unit belongs to cannot be told
            return np.array([ANY]), np.array([ANY])
        common = frozenset.intersection(*row_sets)
        if len(row_sets) > 1:
            row_sets = [units - common for units in row_sets]
        else:
            column_sets = [units - common for units in column_sets]
        for row, row_set in zip(sets, row_sets, strict=True):
            for cell, column_set in zip(row, column_sets, strict=True):
                if cell != row_set | column_set and not self._lenient:
                    raise MismatchError("what is left of a reshaped dimension is not a rectangle of its units")
        return (
            np.array([self._sets.pack(units) for units in row_sets], dtype=np.int64),
            np.array([self._sets.pack(units) for units in column_sets], dtype=np.int64),
        )
