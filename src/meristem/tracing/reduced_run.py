"""Runs of reduced copies of a model: its labels must fit without any new union, and its numbers must not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from meristem.space.absent_blocks import DROPPED, leave_out
from meristem.space.arrays import BoolArray, IntArray
from meristem.space.axis import Axis
from meristem.space.paths import is_inside
from meristem.space.remembered_sizes import write_size
from meristem.space.state_tensors import state_tensors
from meristem.tracing.expected import Expected
from meristem.tracing.full_run import FullRun, first_line
from meristem.tracing.grouping import Grouping
from meristem.tracing.labelled_run import LabelledRun
from meristem.tracing.labels import ANY, Dim
from meristem.tracing.observations import Observations, OpError, SizeKey, TensorDim
from meristem.tracing.restriction import Restriction
from meristem.tracing.run_record import Repetition
from meristem.tracing.sized_numbers import ExpectedNumbers, SizedNumbers
from meristem.tracing.unit_labels import KnownUnitLabels

Sizes = Mapping[SizeKey, Axis]  # what the remembered sizes follow
Masks = Mapping[str, BoolArray]  # which units of each group are live


@dataclass(frozen=True)
class Failure:
    """Why a reduced model does not compute what is left of the full one: the message, where, and the units involved."""

    message: str
    where: str
    units: IntArray
    training: bool = False


@dataclass(frozen=True)
class Known:
    """What is known of a reduced model before it runs, the same in all modes; a run adds to copies of it."""

    expected: Observations
    cuts: dict[str, list[IntArray]]
    left: Callable[[Dim], Dim]
    sizes: Callable[[IntArray], int]

    def observations(self, users: dict[str, set[str]]) -> Observations:
        """The observations of one run; ``users`` is filled by it."""
        known = self.expected
        return Observations(known.labels, users=users, owned=dict(known.owned), states=dict(known.states))


@dataclass(frozen=True)
class Reduction:
    """What is left of a model's dimensions when only the units in ``masks`` are live."""

    grouping: Grouping
    masks: Masks
    _live_by_id: dict[int, tuple[IntArray, BoolArray]] = field(default_factory=dict)  # labels are kept alive

    @cached_property
    def live(self) -> dict[TensorDim, BoolArray]:
        """The live positions of every dimension of the model's tensors that has labels."""
        owned = self.grouping.observations.owned
        return {key: self._live(dim.ids) for key, dim in owned.items() if dim.ids is not None}

    def _count(self, ids: IntArray) -> int:
        return int(self._live(ids).sum())

    def _live(self, ids: IntArray) -> BoolArray:
        cached = self._live_by_id.get(id(ids))
        if cached is None:
            cached = self._live_by_id[id(ids)] = ids, self.grouping.axis_of(ids).live(self.masks)
        return cached[1]

    def tensor(self, name: str, tensor: Tensor) -> Tensor:
        """What is left of a tensor of the model."""
        kept = [
            np.flatnonzero(self.live[name, dim]) if (name, dim) in self.live else None for dim in range(tensor.dim())
        ]
        if tensor.is_meta:
            shape = [size if rows is None else len(rows) for size, rows in zip(tensor.shape, kept, strict=True)]
            return torch.empty(shape, dtype=tensor.dtype, device="meta")
        reduced = tensor.detach()
        for dim, rows in enumerate(kept):
            reduced = reduced if rows is None else reduced.index_select(dim, torch.from_numpy(rows).to(tensor.device))
        return reduced.clone()

    def under(self, labels: KnownUnitLabels) -> Known:
        """What is known beforehand of a run with these labels."""
        return Known(self._observations(labels), self._cuts(labels), Left(self, labels), self._count)

    def _observations(self, labels: KnownUnitLabels) -> Observations:
        """The labels that the model's tensors and state must turn out to have."""
        observations = Observations(labels)
        for key, dim in self.grouping.observations.owned.items():
            live = self.live.get(key, np.ones(dim.size, dtype=np.bool_))
            owners = [] if dim.ids is None else self.grouping.resolution.leaves(dim.ids)
            size = int(live.sum())
            observations.owned[key] = Dim(size, labels.of_positions(owners, live), constant=size == 1, origin=key)
        for path, dims in self.grouping.observations.states.items():
            observations.states[path] = [self._state_dim(labels, dim) for dim in dims]
        return observations

    def left_of(self, ids: IntArray, labels: KnownUnitLabels) -> Dim:
        """What is left of a dimension with these labels."""
        live = self._live(ids)
        size = int(live.sum())
        left = labels.of_positions(self.grouping.resolution.leaves(ids), live)
        if left is not None and (ids < 0).any():
            left = np.where(ids[live] == ANY, ANY, left)
        return Dim(size, left, constant=size == 1)

    def _state_dim(self, labels: KnownUnitLabels, dim: Dim) -> Dim:
        if dim.ids is None:
            return dim
        live = self._live(dim.ids)
        size = int(live.sum())
        ids = labels.of_positions(self.grouping.resolution.leaves(dim.ids), live)
        return Dim(size, ids, constant=size == 1)

    def _cuts(self, labels: KnownUnitLabels) -> dict[str, list[IntArray]]:
        """What is left of the parts that the full run cut out by position."""
        parts = self.grouping.observations.cuts
        return {where: [self._left(labels, ids) for ids in vectors] for where, vectors in parts.items()}

    def _left(self, labels: KnownUnitLabels, ids: IntArray) -> IntArray:
        live = self._live(ids)
        left = labels.of_positions(self.grouping.resolution.leaves(ids), live)
        return np.zeros(int(live.sum()), dtype=np.int64) if left is None else left


class Left:
    """What is left of the dimensions of the full model, with the labels of one reduced run."""

    def __init__(self, reduction: Reduction, labels: KnownUnitLabels) -> None:
        self._reduction, self._labels = reduction, labels
        self._cached: dict[int, tuple[Dim, Dim]] = {}  # both are kept alive
        self._by_labels: dict[int, tuple[IntArray, Dim]] = {}

    def __call__(self, dim: Dim) -> Dim:
        if dim.ids is None:
            return dim
        cached = self._cached.get(id(dim))
        if cached is None:
            ids = dim.ids
            same = self._by_labels.get(id(ids))
            if same is None:
                same = self._by_labels[id(ids)] = ids, self._reduction.left_of(ids, self._labels)
            cached = self._cached[id(dim)] = dim, replace(same[1], origin=dim.origin, merged=dim.merged)
        return cached[1]


class ReducedRuns:
    """Runs reduced copies of one model, and says what goes wrong."""

    def __init__(self, full: FullRun) -> None:
        self._full = full
        self.sized = SizedNumbers(full.observations)

    def failure(
        self,
        grouping: Grouping,
        sizes: Sizes,
        masks: Masks,
        modes: Sequence[bool] | None = None,
        absent: Mapping[str, str] = MappingProxyType({}),
    ) -> Failure | None:
        """What goes wrong when only the units in ``masks`` are live, or None.

        ``modes`` are the training flags; None: all in which the full model runs. ``absent`` are the blocks that are
        left out, and how.
        """
        reduction = Reduction(grouping, masks)
        all_live = all(mask.all() for mask in masks.values())
        for blocks in _with_every_other(absent) if all_live else [absent]:
            failure = self._failure(reduction, sizes, modes, blocks)
            if failure is not None:
                return failure
        return None

    def _failure(
        self, reduction: Reduction, sizes: Sizes, modes: Sequence[bool] | None, absent: Mapping[str, str]
    ) -> Failure | None:
        grouping, masks = reduction.grouping, reduction.masks
        model = self._reduced_model(reduction, sizes, absent)
        # Where each group has all of its units or one, labels only say whom to blame: one unit fits anywhere.
        lenient = all(mask.sum() == 1 or mask.all() for mask in masks.values())
        single = [name for name, mask in masks.items() if mask.sum() == 1 and not lenient]
        alone = grouping.labels_of(single)
        users: dict[str, set[str]] = {}
        known = reduction.under(KnownUnitLabels(alone, lenient))
        for number, training in enumerate(self._full.records if modes is None else modes):
            run = partial(self._run, model.train(training), absent=absent)
            failure = run(known, users)
            if failure is not None and number:  # a model may keep something of its first run, as the full one could not
                model = self._reduced_model(reduction, sizes, absent)
                run = partial(self._run, model.train(training), absent=absent)
                failure = run(known, users)
            if failure is None:
                continue
            if alone.any():  # once more with every label, to see all that the failing operation touches
                again = run(reduction.under(KnownUnitLabels(np.zeros_like(alone), lenient=True)), {})
                units = failure.units if again is None else np.union1d(failure.units, again.units)
                failure = Failure(failure.message, failure.where, units, training)
            return failure
        if absent:
            return _other_users(grouping.observations.users, users, absent) if modes is None else None
        return _held_elsewhere(reduction, users, training)

    def _reduced_model(self, reduction: Reduction, sizes: Sizes, absent: Mapping[str, str]) -> nn.Module:
        model = self._full.copies.make(reduction.tensor)
        _write_sizes(model, sizes, reduction.masks)
        for path, way in absent.items():
            leave_out(model, path, way)
        return model

    def _run(
        self, model: nn.Module, known: Known, users: dict[str, set[str]], *, absent: Mapping[str, str]
    ) -> Failure | None:
        """Run the reduced model; ``users`` is filled with the modules that use each tensor."""
        full, observations = self._full, known.observations(users)
        call = full.call
        if call.state is not None:  # in its reduced size; its numbers do not matter
            states = state_tensors(call.state)
            reduced = {
                id(leaf): leaf.new_zeros([dim.size for dim in observations.states[path]]) for path, leaf in states
            }
            call = call.with_state(tree_map(lambda leaf: reduced.get(id(leaf), leaf), call.state))
        repetition = Repetition(full.records[model.training], absent)
        expected = Expected(repetition, known.cuts, ExpectedNumbers(repetition, self.sized, known.sizes))
        restriction = Restriction(full.behaviour, full.observations.owned, known.left)
        run = LabelledRun(model, observations, full.own, meta=full.meta, expected=expected)
        if full.meta is not None:
            run.replaying(restriction)
        try:
            run.follow(call)
            return None
        except OpError as error:
            failed = error
        except Exception as error:  # the user's own code refused the reduced size, in its own way
            failed = run.failure_outside_operations(f"{type(error).__name__}: {error}")
        finally:
            run.forget()
        labels = observations.labels
        assert isinstance(labels, KnownUnitLabels)
        ids = [labels.units(dim.ids) for dim in failed.dims if dim.ids is not None]
        units = np.unique(np.concatenate(ids)) if ids else np.zeros(0, dtype=np.int64)
        return Failure(first_line(failed), failed.where, units, model.training)


def _with_every_other(absent: Mapping[str, str]) -> list[Mapping[str, str]]:
    """All blocks; of those that shorten their list also every other one: code that counts may only then go wrong."""
    dropped = [path for path, way in absent.items() if way == DROPPED]
    every_other = [dropped[start::2] for start in (0, 1)] if len(dropped) > 1 else []
    return [absent, *(dict.fromkeys(paths, DROPPED) for paths in every_other)]


def _other_users(
    before: Mapping[str, set[str]], now: Mapping[str, set[str]], absent: Mapping[str, str]
) -> Failure | None:
    """Whether without the blocks others are given tensors that were not theirs, or some are not used any more.

    Where a block is dropped from its list, code that counts along another list goes on counting there.
    """
    if DROPPED not in absent.values():
        return None
    for name in sorted({*before, *now}):
        if _lies_in(name, absent):
            continue
        users = {user for user in before.get(name, set()) if user not in absent and not _lies_in(user, absent)}
        if users != now.get(name, set()):
            others = ", ".join(sorted(user or "the model" for user in now.get(name, set()))) or "nobody"
            return Failure(f"{name} would then be used by {others}", "the model", np.zeros(0, dtype=np.int64))
    return None


def _held_elsewhere(reduction: Reduction, users: Mapping[str, set[str]], training: bool) -> Failure | None:
    """Whether the model goes on with an old tensor, because it holds it where surgery does not find it."""
    observations, resolution = reduction.grouping.observations, reduction.grouping.resolution
    for (name, dim), live in reduction.live.items():
        ids = observations.owned[name, dim].ids
        if name in observations.users and name not in users and not live.all() and ids is not None:
            units = np.unique(np.concatenate(resolution.leaves(ids)))
            return Failure("an object that is not followed holds it, too", name, units[units > 0], training)
    return None


def _lies_in(path: str, blocks: Iterable[str]) -> bool:
    return any(is_inside(path, block) for block in blocks)


def _write_sizes(model: nn.Module, sizes: Sizes, masks: Masks) -> None:
    """Write the sizes that modules remember, for the live units in ``masks``."""
    for (path, name, index), axis in sizes.items():
        if axis.parts:
            write_size(model.get_submodule(path), name, index, int(axis.live(masks).sum()))
