"""The proof: before a group is called free, the reduced model is run and its labels must fit without any new union."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from meristem.space.absent_blocks import DROPPED, leave_out
from meristem.space.arrays import BoolArray, IntArray
from meristem.space.axis import Axis
from meristem.space.rules import write_size
from meristem.space.state_tensors import state_tensors
from meristem.tracing.grouping import Draft
from meristem.tracing.labelled_run import Run
from meristem.tracing.labels import ANY, Dim, Labels
from meristem.tracing.model_call import Call
from meristem.tracing.model_copy import copy_with
from meristem.tracing.observations import OpError, Record

Sizes = Mapping[tuple[str, str, int | None], Axis]
Scalars = Mapping[str, set[tuple[Any, ...]]]  # the plain numbers that each kind of operation was given, by place


class MismatchError(ValueError):
    """Two different units would have to be the same."""


class Checker(Labels):
    """Labels that are sets of known units. Nothing may be united, pinned or made any more.

    Where a group has one unit left, torch's broadcasting makes its dimension fit anything, and a reshape can no longer
    tell rows from columns: ``alone`` marks such units, which are left out of the labels. A ``lenient`` checker follows
    labels, to know whom to blame when an operation fails, but accepts every union.
    """

    def __init__(self, alone: BoolArray, lenient: bool) -> None:
        super().__init__()
        self._alone, self._lenient = alone, lenient
        # A label below N = len(alone) is a leaf, one below N + N * N encodes a pair of leaves, one above names a set.
        self._sets: list[frozenset[int]] = []
        self._number: dict[frozenset[int], int] = {}

    def known(self, leaves: Sequence[IntArray], live: BoolArray) -> IntArray | None:
        """The labels of the live positions of a dimension, from the leaves (one array per factor) that own it."""
        columns = [np.where(self._alone[column[live]], 0, column[live]) for column in leaves]
        columns = [column for column in columns if (column > 0).any()]
        if len(columns) <= 1:
            return columns[0] if columns else None
        if len(columns) == 2:
            return self._pairs(*columns)
        rows, inverse = np.unique(np.stack(columns), axis=1, return_inverse=True)
        numbers = np.array([self.number(frozenset(row[row > 0].tolist())) for row in rows.T], dtype=np.int64)
        return numbers[inverse.reshape(-1)]

    def _pairs(self, one: IntArray, two: IntArray) -> IntArray:
        """Labels for pairs of leaves, either of which may be 0."""
        low, high = np.minimum(one, two), np.maximum(one, two)
        encoded: IntArray = np.where((low > 0) & (low < high), (low + 1) * len(self._alone) + high, high)
        return encoded

    def number(self, units: frozenset[int]) -> int:
        if len(units) < 2:
            return next(iter(units), 0)
        size = len(self._alone)
        if len(units) == 2:
            return (min(units) + 1) * size + max(units)
        if units not in self._number:
            self._number[units] = size + size * size + len(self._sets)
            self._sets.append(units)
        return self._number[units]

    def set_of(self, label: int) -> frozenset[int]:
        size = len(self._alone)
        if label >= size + size * size:
            return self._sets[label - size - size * size]
        if label >= size:
            return frozenset([label // size - 1, label % size])
        return frozenset([label]) if label > 0 else frozenset()

    def units(self, ids: IntArray) -> IntArray:
        """The leaves that own any of these labels."""
        owners: set[int] = set()
        for label in np.unique(ids[ids > 0]).tolist():
            owners |= self.set_of(label)
        return np.array(sorted(owners), dtype=np.int64)

    def fresh(self, size: int) -> IntArray:
        raise MismatchError("a tensor of the model is used that was not used before")

    def pin_ids(self, ids: IntArray, reason: str) -> None:
        if len(ids) and not self._lenient:
            raise MismatchError(reason)

    def _meet(self, mine: IntArray, other: IntArray, reason: str) -> None:
        if not self._lenient and ((mine != other) & (mine != ANY) & (other != ANY)).any():
            raise MismatchError("positions of different units meet")

    def cells(self, rows: IntArray, columns: IntArray) -> IntArray:
        if (rows < len(self._alone)).all() and (columns < len(self._alone)).all():
            return self._pairs(rows, columns)
        pairs, inverse = np.unique(np.stack([rows, columns]), axis=1, return_inverse=True)
        made = [self.number(self.set_of(row) | self.set_of(column)) for row, column in pairs.T.tolist()]
        return np.array(made, dtype=np.int64)[inverse.reshape(-1)]

    def split(self, dim: Dim, sizes: Sequence[int]) -> list[Dim]:
        if dim.ids is None or len(sizes) == 1:
            return super().split(dim, sizes)
        if (dim.ids < len(self._alone)).all():
            return super().split(dim, sizes)
        first, rest = sizes[0], int(np.prod(sizes[1:]))
        rows, columns = self.factor(dim.ids.reshape(first, rest))
        return [self._dim(rows), *self.split(self._dim(columns), sizes[1:])]

    @staticmethod
    def _dim(ids: IntArray) -> Dim:
        return Dim(len(ids), ids if (ids > 0).any() else None, constant=bool((ids == ANY).all()))

    def factor(self, grid: IntArray) -> tuple[IntArray, IntArray]:
        if (grid < 0).any() and not self._lenient:
            raise MismatchError("a reshaped dimension is partly constant")
        sets = [[self.set_of(label) for label in row] for row in grid.tolist()]
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
            np.array([self.number(units) for units in row_sets], dtype=np.int64),
            np.array([self.number(units) for units in column_sets], dtype=np.int64),
        )


class Reduced(Run):  # type: ignore[no-untyped-call]
    """A labelled run of a reduced model, compared with the full run."""

    forgiving = False

    def __init__(self, *args: Any, scalars: Scalars, cuts: Mapping[str, list[IntArray]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._expected, self._cuts = scalars, cuts

    def cut(self, part: Dim) -> None:
        """What is cut out by position must be what is left of a part that the full run cut out here."""
        vector = np.maximum(part.vector(), 0)
        if not any(np.array_equal(vector, known) for known in self._cuts.get(self.where, [])):
            raise MismatchError("it cuts out other units by position")

    def scalar_seen(self, numbers: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        if numbers not in self._expected.get(self.where, {numbers}):
            raise self._failed("a number in the computation depends on its size", arguments)


class Prover:
    """Runs reduced copies of one model. ``modes`` are the training flags in which the full model could be run."""

    def __init__(
        self,
        model: nn.Module,
        call: Call,
        like: Mapping[str, str],
        scalars: Mapping[bool, Scalars],
        meta: bool,
    ) -> None:
        self.model, self.call, self.like, self.scalars, self.meta = model, call, like, scalars, meta

    def failure(
        self,
        made: Draft,
        sizes: Sizes,
        masks: Mapping[str, BoolArray],
        modes: Sequence[bool] | None = None,
        absent: Mapping[str, str] = MappingProxyType({}),
    ) -> OpError | None:
        """What goes wrong when only the units in ``masks`` are live, or None.

        ``modes`` are the training flags, ``absent`` the blocks that are left out, and how.
        """
        full = all(mask.all() for mask in masks.values())
        for part in _parts(absent) if full else [absent]:
            failed = self._failure(made, sizes, masks, modes, part)
            if failed is not None:
                return failed
        return None

    def _failure(
        self,
        made: Draft,
        sizes: Sizes,
        masks: Mapping[str, BoolArray],
        modes: Sequence[bool] | None,
        absent: Mapping[str, str],
    ) -> OpError | None:
        axes = {key: made.axis(dim.size, dim.ids) for key, dim in made.record.owned.items() if dim.ids is not None}
        live = {key: axis.live(masks) for key, axis in axes.items()}
        reduced = copy_with(self.model, lambda name, tensor: self._shrunk(name, tensor, live), self.meta)
        set_sizes(reduced, sizes, masks)
        for path, way in absent.items():
            leave_out(reduced, path, way)
        single = {name for name, mask in masks.items() if mask.sum() == 1}
        numbers = [number for number, group in enumerate(made.groups) if group.name in single]
        lenient = all(mask.sum() == 1 or mask.all() for mask in masks.values())
        alone = np.isin(made.group_of, numbers) & (not lenient)
        used: dict[str, set[str]] = {}
        for training in self.scalars if modes is None else modes:
            checker = Checker(alone, lenient)
            failed = self._run(made, checker, reduced.train(training), live, masks, training, used)
            if failed is None:
                continue
            if alone.any():  # once more with every label, to see all that the failing operation touches
                again = self._run(made, Checker(np.zeros_like(alone), True), reduced, live, masks, training, {})
                failed.dims += again.dims if again is not None else []
            failed.training = training
            return failed
        return _mixed_up(made.record.users, used, absent) if modes is None else None

    def _shrunk(self, name: str, tensor: Tensor, live: Mapping[tuple[str, int], BoolArray]) -> Tensor:
        kept = [np.flatnonzero(live[name, dim]) if (name, dim) in live else None for dim in range(tensor.dim())]
        if self.meta:
            shape = [size if rows is None else len(rows) for size, rows in zip(tensor.shape, kept, strict=True)]
            return torch.empty(shape, dtype=tensor.dtype, device="meta")
        shrunk = tensor.detach()
        for dim, rows in enumerate(kept):
            shrunk = shrunk if rows is None else shrunk.index_select(dim, torch.from_numpy(rows).to(tensor.device))
        return shrunk.clone()

    @staticmethod
    def _reduced(made: Draft, checker: Checker, dim: Dim, masks: Mapping[str, BoolArray]) -> Dim:
        """What is left of a dimension of the state."""
        if dim.ids is None:
            return dim
        kept = made.axis(dim.size, dim.ids).live(masks)
        size = int(kept.sum())
        return Dim(size, checker.known(made.resolution.leaves(dim.ids), kept), constant=size == 1)

    def _shrunk_call(self, record: Record) -> Call:
        """The call with the example's state, if it has one, in its reduced size; its numbers do not matter."""
        if self.call.state is None:
            return self.call
        sizes = {id(leaf): [dim.size for dim in record.states[path]] for path, leaf in state_tensors(self.call.state)}
        return self.call.with_state(
            tree_map(
                lambda leaf: leaf.new_zeros(sizes[id(leaf)]) if isinstance(leaf, Tensor) else leaf, self.call.state
            )
        )

    @staticmethod
    def _left(made: Draft, checker: Checker, ids: IntArray, masks: Mapping[str, BoolArray]) -> IntArray:
        """The labels that are left of a dimension which had ``ids`` in the full run."""
        kept = made.axis(len(ids), ids).live(masks)
        labels = checker.known(made.resolution.leaves(ids), kept)
        return np.zeros(int(kept.sum()), dtype=np.int64) if labels is None else labels

    def _run(
        self,
        made: Draft,
        checker: Checker,
        reduced: nn.Module,
        live: Mapping[tuple[str, int], BoolArray],
        masks: Mapping[str, BoolArray],
        training: bool,
        used: dict[str, set[str]],
    ) -> OpError | None:
        """Run it; in ``used`` comes who used which tensor."""
        record = Record(checker, users=used)
        for key, dim in made.record.owned.items():
            kept = live.get(key, np.ones(dim.size, dtype=np.bool_))
            ids = checker.known([] if dim.ids is None else made.resolution.leaves(dim.ids), kept)
            size = int(kept.sum())
            record.owned[key] = Dim(size, ids, constant=size == 1, origin=key)
        for path, dims in made.record.states.items():
            record.states[path] = [self._reduced(made, checker, dim, masks) for dim in dims]
        cuts = {
            where: [self._left(made, checker, ids, masks) for ids in parts] for where, parts in made.record.cuts.items()
        }
        run = Reduced(
            reduced, record, self.like, meta=self.meta, counting=False, scalars=self.scalars[training], cuts=cuts
        )
        try:
            follow(run, self._shrunk_call(record))
        except OpError as failed:
            failed.dims = [_as_leaves(checker, dim) for dim in failed.dims]
            return failed
        except Exception as error:  # the user's own code refused the reduced size, in its own way
            message = f"{type(error).__name__}: {error}"
            try:
                dims = [_as_leaves(checker, dim) for dim in run.clues()]
            except MismatchError:  # the last operation was on a tensor that was never seen
                dims = []
            return OpError(message, run.path or "the model", dims)
        return None


def _parts(absent: Mapping[str, str]) -> list[Mapping[str, str]]:
    """All blocks; of those that shorten their list also every other one: code that counts may only then go wrong."""
    dropped = [path for path, way in absent.items() if way == DROPPED]
    every_other = [dropped[start::2] for start in (0, 1)] if len(dropped) > 1 else []
    return [absent, *(dict.fromkeys(paths, DROPPED) for paths in every_other)]


def _mixed_up(before: Mapping[str, set[str]], now: Mapping[str, set[str]], absent: Mapping[str, str]) -> OpError | None:
    """Whether without the blocks others are given tensors that were not theirs, or some are not used any more.

    Where a block is dropped from its list, code that counts along another list goes on counting there.
    """
    if DROPPED not in absent.values():
        return None
    inside = tuple(f"{path}." for path in absent)
    for name in sorted({*before, *now}):
        users = {user for user in before.get(name, set()) if not f"{user}.".startswith(inside)}
        if not name.startswith(inside) and users != now.get(name, set()):
            others = ", ".join(sorted(user or "the model" for user in now.get(name, set()))) or "nobody"
            return OpError(f"{name} would then be used by {others}", "the model", [])
    return None


def _as_leaves(checker: Checker, dim: Dim) -> Dim:
    """The same dimension, in labels of the full model: the leaves that own it."""
    if dim.ids is None:
        return dim
    leaves = checker.units(dim.ids)
    return Dim(len(leaves), leaves if len(leaves) else None)


def follow(run: Run, call: Call) -> None:
    """Run the model; if it carries a state that the example lacks, run it again with the one it returned."""
    run.execute(call)
    if call.carried is not None and call.state is None:
        run.counting = False
        run.execute(call.with_state(run.state))


def set_sizes(model: nn.Module, sizes: Sizes, masks: Mapping[str, BoolArray]) -> None:
    """Write the sizes that modules remember, for the live units in ``masks``."""
    for (path, name, index), axis in sizes.items():
        if axis.parts:
            write_size(model.get_submodule(path), name, index, int(axis.live(masks).sum()))
