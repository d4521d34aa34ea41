"""Labels: which unit owns each position of each dimension, while the model's real operations run.

Every position of a dimension carries an integer, its label. A label above 0 stands for a unit, or for a part of one;
two more values mark positions without a unit:

====== ===================================================================================================
 label  meaning
====== ===================================================================================================
  > 0   owned: it lives or dies with everything else that has the same label, or a label united with it
    0   ``FIXED``: it never changes (an input, an output, a class)
   -1   ``ANY``: it is one of a constant, which is the same everywhere and fits whatever it meets
====== ===================================================================================================

Operations that move elements move labels; operations that combine elements unite labels. Two layers of three units
whose results are added have the same units:

>>> labels = Labels()
>>> one, two = Dim(3, labels.fresh(3)), Dim(3, labels.fresh(3))
>>> one.ids.tolist(), two.ids.tolist()
([1, 2, 3], [4, 5, 6])
>>> total = labels.unite(one, two, "the reason, should one of them be fixed")
>>> total.ids.tolist(), [(a.tolist(), b.tolist()) for a, b in labels.unions]
([1, 2, 3], [([1, 2, 3], [4, 5, 6])])

What meets a fixed position is pinned; what meets a constant stays free:

>>> _ = labels.unite(one, dim_of(np.array([ANY, 2, FIXED])), "it meets an input")
>>> [(pin.ids.tolist(), pin.reason) for pin in labels.pins]
[([3], 'it meets an input')]

A reshape that splits a dimension, ``(heads x size)`` say, makes each of its labels the product of a row label and a
column label. This is a *factoring*. What survives of such a dimension must be a rectangle, so the rows and the columns
are what lives or dies:

>>> labels = Labels()
>>> heads, size = labels.split(Dim(6, labels.fresh(6)), [2, 3])
>>> heads.ids.tolist(), size.ids.tolist()
([7, 8], [9, 10, 11])
>>> (factoring,) = labels.factorings
>>> list(zip(factoring.cells.tolist(), factoring.rows.tolist(), factoring.columns.tolist()))
[(1, 7, 9), (2, 7, 10), (3, 7, 11), (4, 8, 9), (5, 8, 10), (6, 8, 11)]

``Labels`` only records (unions, pins, factorings); ``resolve.py`` draws the conclusions. In a reduced model every unit
is known: there the rules of operations work with a strict subclass (``unit_labels.py``) that accepts no union.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meristem.space.arrays import IntArray

FIXED = 0
ANY = -1


@dataclass(eq=False, slots=True)  # never changed, but not frozen: making those takes three times as long
class Dim:
    """One dimension of a tensor in flight: its size, the label of each position (None: all fixed), and its origin.

    ``constant`` marks a dimension that fits anything (broadcast, or of a tensor made of constants). ``origin`` is the
    (tensor name, dim) of the model this dimension still is, untouched. ``merged`` tells of a fixed dimension that was
    merged from several, some of which only repeat: their sizes, and whether each is constant.
    """

    size: int
    ids: IntArray | None = None
    constant: bool = False
    origin: tuple[str, int] | None = None
    merged: tuple[tuple[int, bool], ...] = ()

    @property
    def labelled(self) -> bool:
        return self.ids is not None

    def vector(self) -> IntArray:
        """The labels as an array, whatever the form."""
        if self.ids is not None:
            return self.ids
        return np.full(self.size, ANY if self.constant else FIXED, dtype=np.int64)


def constant(size: int) -> Dim:
    """A dimension along which nothing varies: it fits any units."""
    return Dim(size, constant=True)


def merged(parts: Sequence[tuple[int, bool]]) -> Dim:
    """The dimension without labels that parts, each a size and whether it is constant, become when flattened."""
    parts = [(size, constant) for size, constant in parts if size != 1]
    size, constants = int(np.prod([size for size, _ in parts])), {constant for _, constant in parts}
    return Dim(size, merged=tuple(parts)) if len(constants) > 1 else Dim(size, constant=False not in constants)


def dim_of(ids: IntArray) -> Dim:
    """The Dim of an explicit label vector, in its simplest form."""
    if (ids > 0).any():
        return Dim(len(ids), ids)
    return Dim(len(ids), constant=bool((ids == ANY).all()))


@dataclass
class Pin:
    """Labels that may not change, and why."""

    ids: IntArray
    reason: str


@dataclass
class Factoring:
    """Each of ``cells`` is the product of the row and the column label at the same index."""

    cells: IntArray
    rows: IntArray
    columns: IntArray


@dataclass
class Labels:
    """What one or several runs record about labels. ``count`` is the next label that is free.

    ``uneven`` counts the meetings in which not every position had a unit on both sides, or none on either: what is left
    of two such dimensions may differ.
    """

    count: int = 1
    uneven: int = 0
    unions: list[tuple[IntArray, IntArray]] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    factorings: list[Factoring] = field(default_factory=list)

    def fresh(self, size: int) -> IntArray:
        """Labels that nothing has yet."""
        start = self.count
        self.count += size
        return np.arange(start, start + size, dtype=np.int64)

    def pin(self, dim: Dim, reason: str) -> None:
        """Record that no position of a dimension may change."""
        if dim.ids is not None:
            self.pin_ids(dim.ids[dim.ids > 0], reason)

    def pin_ids(self, ids: IntArray, reason: str) -> None:
        if len(ids):
            self.pins.append(Pin(ids, reason))

    def unite(self, first: Dim, second: Dim, reason: str) -> Dim:
        """The dimension in which ``first`` and ``second`` meet position by position."""
        if first.ids is not None and first.ids is second.ids:
            return first
        if first.size != second.size:
            return self._broadcast(first, second, reason)
        if (first.ids is None) != (second.ids is None):
            self.uneven += 1
        if first is second or (first.constant and not first.labelled):
            return second
        if second.constant and not second.labelled:
            return first
        if first.ids is None and second.ids is None:
            same = first.merged == second.merged
            return first if same and first.origin is None else replace(first, origin=None, merged=first.merged * same)
        if _only_repeats(first, second) or _only_repeats(second, first):
            return first if first.labelled else second
        mine, other = first.vector(), second.vector()
        self.uneven += not ((mine > 0).all() and (other > 0).all())
        self._unite_ids(mine, other, reason)
        return dim_of(np.where(mine > 0, mine, np.where(other > 0, other, np.maximum(mine, other))))

    def _unite_ids(self, mine: IntArray, other: IntArray, reason: str) -> None:
        differ = (mine > 0) & (other > 0) & (mine != other)
        if differ.any():
            self.unions.append((mine[differ], other[differ]))
        for one, two in ((mine, other), (other, mine)):
            self.pin_ids(one[(one > 0) & (two == FIXED)], reason)

    def _broadcast(self, first: Dim, second: Dim, reason: str) -> Dim:
        small, large = (first, second) if first.size == 1 else (second, first)
        if small.size != 1:
            raise ValueError(f"sizes {first.size} and {second.size} do not meet")
        self.uneven += small.ids is not None
        self.pin(small, reason + ", where it is broadcast")
        return replace(large, origin=None)

    def merge(self, dims: Sequence[Dim]) -> Dim:
        """The one dimension that ``dims`` become when they are flattened.

        Fixed dimensions repeat the labels of the others; two dimensions with labels make products.

        >>> labels = Labels()
        >>> units = Dim(2, labels.fresh(2))
        >>> labels.merge([units, Dim(3)]).ids.tolist(), labels.merge([Dim(3), units]).ids.tolist()
        ([1, 1, 1, 2, 2, 2], [1, 2, 1, 2, 1, 2])
        >>> labels.merge([units, Dim(2, labels.fresh(2))]).ids.tolist()
        [5, 6, 7, 8]
        """
        labelled = [dim for dim in dims if dim.labelled]
        size = int(np.prod([dim.size for dim in dims]))
        if not labelled:
            return Dim(size, constant=all(dim.constant for dim in dims))
        if len(labelled) == 1 and all(dim.size == 1 for dim in dims if dim is not labelled[0]):
            return labelled[0]
        flat = np.zeros(1, dtype=np.int64)
        for dim in dims:
            ids = dim.ids if dim.ids is not None else np.full(dim.size, FIXED, dtype=np.int64)
            flat = self._product(flat, ids)
        return dim_of(flat)

    def _product(self, rows: IntArray, columns: IntArray) -> IntArray:
        """The labels of the grid rows x columns, flattened."""
        left = np.repeat(rows, len(columns))
        right = np.tile(columns, len(rows))
        if not (rows > 0).any():
            return np.where(right > 0, right, left)
        if not (columns > 0).any():
            return np.where(left > 0, left, right)
        both = (left > 0) & (right > 0)
        result = np.where(left > 0, left, right)
        result[both] = self.cells(left[both], right[both])
        return result

    def cells(self, rows: IntArray, columns: IntArray) -> IntArray:
        """One label for every pair of a row and a column; equal pairs get equal labels.

        >>> Labels(count=5).cells(np.array([1, 1, 2, 1]), np.array([3, 4, 3, 3])).tolist()
        [5, 6, 7, 5]
        """
        pairs, inverse = np.unique(np.stack([rows, columns]), axis=1, return_inverse=True)
        products = self.fresh(pairs.shape[1])
        self.factorings.append(Factoring(products, pairs[0], pairs[1]))
        return products[inverse.reshape(-1)]

    def split(self, dim: Dim, sizes: Sequence[int]) -> list[Dim]:
        """The dimensions that ``dim`` becomes when it is viewed as a grid of ``sizes``.

        Labels that vary along one axis of the grid only stay what they are; others are factored.

        >>> labels = Labels()
        >>> rows, columns = labels.split(dim_of(np.repeat(labels.fresh(2), 3)), [2, 3])
        >>> rows.ids.tolist(), columns.ids
        ([1, 2], None)
        """
        if len(sizes) == 1:
            return [dim]
        if dim.ids is None:
            return [Dim(size, constant=dim.constant) for size in sizes]
        grid = dim.ids.reshape(sizes)
        varies = [axis for axis in range(len(sizes)) if (grid != grid.take([0], axis)).any()]
        if len(varies) <= 1:
            labelled_axis = varies[0] if varies else self._axis_of_a_lone_label(sizes)
            return [
                dim_of(np.ascontiguousarray(np.moveaxis(grid, axis, 0).reshape(size, -1)[:, 0]))
                if axis == labelled_axis
                else Dim(size)
                for axis, size in enumerate(sizes)
            ]
        first, rest = sizes[0], int(np.prod(sizes[1:]))
        rows, columns = self.factor(dim.ids.reshape(first, rest))
        return [dim_of(rows), *self.split(dim_of(columns), sizes[1:])]

    @staticmethod
    def _axis_of_a_lone_label(sizes: Sequence[int]) -> int | None:
        """Where the label goes if all positions have the same one: along an axis of size 1, if there is one."""
        return next((axis for axis, size in enumerate(sizes) if size == 1), None)

    def factor(self, grid: IntArray) -> tuple[IntArray, IntArray]:
        """Row and column labels for a grid of labels that varies along one or both of its axes."""
        rows, columns = _axis_labels(self, grid), _axis_labels(self, grid.T)
        owned = grid > 0
        left = np.broadcast_to(rows[:, None], grid.shape)
        right = np.broadcast_to(columns[None, :], grid.shape)
        if (rows > 0).any() and (columns > 0).any():
            product = owned & (left > 0) & (right > 0)
            self.factorings.append(Factoring(grid[product], left[product], right[product]))
        else:
            single = np.where(left > 0, left, right)[owned]
            self.unions.append((grid[owned], single))
        if not owned.all():
            self.pin_ids(grid[owned], "only a part of a reshaped dimension has units")
        return rows, columns


def _only_repeats(dim: Dim, units: Dim) -> bool:
    """Whether a merged dimension says the same of all units it meets: a mask for each sample, repeated for each head.

    Units that differ where it is not constant are told apart by position.
    """
    if not dim.merged or units.ids is None:
        return False
    grid = units.ids.reshape([size for size, _ in dim.merged])
    fixed = [axis for axis, (_, constant) in enumerate(dim.merged) if not constant]
    return all((grid == grid.take([0], axis)).all() for axis in fixed)


def _axis_labels(labels: Labels, grid: IntArray) -> IntArray:
    """A fresh label for every distinct row of ``grid``; fixed if all rows are the same."""
    if (grid == grid[:1]).all():
        return np.zeros(len(grid), dtype=np.int64)
    _, inverse = np.unique(grid, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    return labels.fresh(int(inverse.max()) + 1)[inverse]
