"""Labels: who owns each position of each dimension, while the model's real operations run.

Every position of a dimension carries an integer label. Operations that move elements move labels; operations that
combine elements unite labels. A reshape that splits a dimension makes each label the product of a row label and a
column label: what survives of such a dimension must be a rectangle, so rows and columns are the things that can live
or die (heads and head dimensions, for instance).

``Labels`` only records (unions, pins, factorings); ``resolve.py`` draws the conclusions. ``prove.py`` runs the same
rules on a reduced model with a strict subclass that accepts no new union.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meristem.space.arrays import IntArray

FIXED = 0  # a position that never changes
ANY = -1  # a position of a constant: fits whatever it meets


@dataclass(frozen=True, eq=False, slots=True)
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
    """The record of one or several runs."""

    count: int = 1
    edges: list[tuple[IntArray, IntArray]] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    factorings: list[Factoring] = field(default_factory=list)

    def fresh(self, size: int) -> IntArray:
        start = self.count
        self.count += size
        return np.arange(start, start + size, dtype=np.int64)

    def pin(self, dim: Dim, reason: str) -> None:
        if dim.ids is not None:
            self.pin_ids(dim.ids[dim.ids > 0], reason)

    def pin_ids(self, ids: IntArray, reason: str) -> None:
        if len(ids):
            self.pins.append(Pin(ids, reason))

    def unite(self, first: Dim, second: Dim, reason: str) -> Dim:
        """The dimension in which ``first`` and ``second`` meet position by position."""
        if first.size != second.size:
            return self._broadcast(first, second, reason)
        if first is second or (first.constant and not first.labelled):
            return second
        if second.constant and not second.labelled:
            return first
        if first.ids is None and second.ids is None:
            same = first.merged == second.merged
            return first if same and first.origin is None else replace(first, origin=None, merged=first.merged * same)
        if first.ids is second.ids:
            return first
        if _only_repeats(first, second) or _only_repeats(second, first):
            return first if first.labelled else second
        mine, other = first.vector(), second.vector()
        self._meet(mine, other, reason)
        return dim_of(np.where(mine > 0, mine, np.where(other > 0, other, np.maximum(mine, other))))

    def _meet(self, mine: IntArray, other: IntArray, reason: str) -> None:
        both = (mine > 0) & (other > 0) & (mine != other)
        if both.any():
            self.edges.append((mine[both], other[both]))
        for one, two in ((mine, other), (other, mine)):
            self.pin_ids(one[(one > 0) & (two == FIXED)], reason)

    def _broadcast(self, first: Dim, second: Dim, reason: str) -> Dim:
        small, large = (first, second) if first.size == 1 else (second, first)
        if small.size != 1:
            raise ValueError(f"sizes {first.size} and {second.size} do not meet")
        self.pin(small, reason + ", where it is broadcast")
        return replace(large, origin=None)

    def merge(self, dims: Sequence[Dim]) -> Dim:
        """The one dimension that ``dims`` become when they are flattened."""
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
        """One label for every pair of a row and a column; equal pairs get equal labels."""
        pairs, inverse = np.unique(np.stack([rows, columns]), axis=1, return_inverse=True)
        made = self.fresh(pairs.shape[1])
        self.factorings.append(Factoring(made, pairs[0], pairs[1]))
        return made[inverse.reshape(-1)]

    def split(self, dim: Dim, sizes: Sequence[int]) -> list[Dim]:
        """The dimensions that ``dim`` becomes when it is viewed as a grid of ``sizes``."""
        if len(sizes) == 1:
            return [dim]
        if dim.ids is None:
            return [Dim(size, constant=dim.constant) for size in sizes]
        grid = dim.ids.reshape(sizes)
        varies = [axis for axis in range(len(sizes)) if (grid != grid.take([0], axis)).any()]
        if len(varies) <= 1:
            keep = varies[0] if varies else self._home_of_a_constant(sizes)
            return [
                dim_of(np.ascontiguousarray(np.moveaxis(grid, axis, 0).reshape(size, -1)[:, 0]))
                if axis == keep
                else Dim(size)
                for axis, size in enumerate(sizes)
            ]
        first, rest = sizes[0], int(np.prod(sizes[1:]))
        rows, columns = self.factor(dim.ids.reshape(first, rest))
        return [dim_of(rows), *self.split(dim_of(columns), sizes[1:])]

    @staticmethod
    def _home_of_a_constant(sizes: Sequence[int]) -> int | None:
        return next((axis for axis, size in enumerate(sizes) if size == 1), None)

    def factor(self, grid: IntArray) -> tuple[IntArray, IntArray]:
        """Row and column labels for a grid of labels that varies along one or both of its axes."""
        rows, columns = _axis_labels(self, grid), _axis_labels(self, grid.T)
        owned = grid > 0
        left = np.broadcast_to(rows[:, None], grid.shape)
        right = np.broadcast_to(columns[None, :], grid.shape)
        if (rows > 0).any() and (columns > 0).any():
            both = owned & (left > 0) & (right > 0)
            self.factorings.append(Factoring(grid[both], left[both], right[both]))
        else:
            single = np.where(left > 0, left, right)[owned]
            self.edges.append((grid[owned], single))
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
