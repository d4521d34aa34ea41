"""Groups: units that own the same number of positions of the same dimensions are interchangeable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import nn

from meristem.space.arrays import BoolArray, IntArray
from meristem.space.axis import FREE_OF_UNITS, Axis, Part
from meristem.space.paths import layer_path, split_path
from meristem.space.space import Group, Role
from meristem.tracing.labels import Dim
from meristem.tracing.observations import Observations, SizeKey, TensorDim
from meristem.tracing.resolve import Resolution


@dataclass
class Grouping:
    """Which leaf label is which unit of which group: ``group_of`` indexes ``groups``; -1 where there is none."""

    observations: Observations
    resolution: Resolution
    group_of: IntArray
    unit_of: IntArray
    groups: list[Group] = field(default_factory=list)
    _axes: dict[int, tuple[IntArray, Axis]] = field(default_factory=dict)  # by the id of the labels, kept alive

    def axis(self, dim: Dim) -> Axis:
        """The axis of a dimension; ask only when all groups are known."""
        return self.axis_of(dim.ids) if dim.ids is not None else Axis(dim.size)

    def axis_of(self, ids: IntArray) -> Axis:
        """The axis of a dimension with these labels."""
        if id(ids) not in self._axes:
            self._axes[id(ids)] = (ids, self._axis_of(ids))
        return self._axes[id(ids)][1]

    def _axis_of(self, ids: IntArray) -> Axis:
        parts = []
        for column in self.resolution.leaves(ids):
            owners = np.where(column > 0, self.group_of[column], -1)
            for number in np.unique(owners[owners >= 0]):
                units = np.where(owners == number, self.unit_of[column], FREE_OF_UNITS)
                parts.append(Part(self.groups[number].name, units))
        return Axis(len(ids), tuple(parts))

    def groups_in(self, ids: IntArray) -> set[str]:
        """The names of the groups that own any of these labels."""
        names: set[str] = set()
        for column in self.resolution.leaves(ids):
            numbers = self.group_of[column[column > 0]]
            names.update(self.groups[number].name for number in np.unique(numbers[numbers >= 0]))
        return names

    def labels_of(self, names: Iterable[str]) -> BoolArray:
        """Which labels are units of the named groups."""
        wanted = set(names)
        return np.isin(self.group_of, [number for number, group in enumerate(self.groups) if group.name in wanted])

    def full_masks(self) -> dict[str, BoolArray]:
        """Masks by group with all units live."""
        return {group.name: np.ones(group.units, dtype=np.bool_) for group in self.groups}


@dataclass
class _Members:
    """The units that have one signature, so far: their leaf labels, and the dimensions they own positions of."""

    leaves: list[IntArray] = field(default_factory=list)
    owned_dims: list[TensorDim] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(map(len, self.leaves))


def group_units(
    observations: Observations, resolution: Resolution, model: nn.Module, floors: Mapping[TensorDim, int]
) -> Grouping:
    """Group the free units; ``floors`` are the minimum sizes of dimensions."""
    nowhere = np.full(len(resolution.root), -1)
    grouping = Grouping(observations, resolution, nowhere, nowhere.copy())
    members = _members(grouping)
    minima = {number: _minimum(floors, each) for number, each in members.items()}
    _pin_what_cannot_shrink(grouping, members, minima)
    _name_groups(grouping, members, minima, model)
    return grouping


def _members(grouping: Grouping) -> dict[int, _Members]:
    """The free units by signature; they are numbered in the order in which the model's tensors show them."""
    observations, unit_of = grouping.observations, grouping.unit_of
    vectors = [(key, dim.ids) for key, dim in observations.owned.items() if dim.ids is not None]
    counted = [dim.ids for term in observations.terms for dim in term.dims if dim.ids is not None]
    signatures = _signatures(grouping.resolution, [ids for _, ids in vectors] + counted)
    numbered: dict[int, _Members] = {}
    owned_dims: dict[int, list[TensorDim]] = {}
    for key, ids in vectors:
        for column in grouping.resolution.leaves(ids):
            leaves, first = np.unique(column[column > 0], return_index=True)
            leaves = leaves[np.argsort(first)]
            for signature in np.unique(signatures[leaves]).tolist():
                owned_dims.setdefault(signature, []).append(key)
            for signature in np.unique(signatures[leaves[unit_of[leaves] < 0]]).tolist():
                fresh = leaves[(signatures[leaves] == signature) & (unit_of[leaves] < 0)]
                members = numbered.setdefault(signature, _Members(owned_dims=owned_dims[signature]))
                unit_of[fresh] = np.arange(len(fresh)) + members.count
                members.leaves.append(fresh)
    return numbered


def _signatures(resolution: Resolution, vectors: Sequence[IntArray]) -> IntArray:
    """A hash per leaf of (which vectors, which factor, how many positions) it owns."""
    total = np.zeros(len(resolution.root), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for number, ids in enumerate(vectors):
            for factor, column in enumerate(resolution.leaves(ids)):
                leaves, counts = np.unique(column[column > 0], return_counts=True)
                key = counts.astype(np.uint64) + np.uint64((number * 16 + factor) << 24)
                total[leaves] += _hashed(key)
    return total.astype(np.int64)


def _hashed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A well-spread 64-bit hash of every value."""
    mixed = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _minimum(floors: Mapping[TensorDim, int], members: _Members) -> int:
    """How few of the units of a group may be live."""
    return max([1, *(min(members.count, floors[key]) for key in members.owned_dims if key in floors)])


def _pin_what_cannot_shrink(grouping: Grouping, members: dict[int, _Members], minima: Mapping[int, int]) -> None:
    """Pin units that are no more than must be live, or of no use to anything, and drop them from ``members``."""
    for number in list(members):
        reason = ""
        if members[number].count <= minima[number]:
            lone = members[number].count == 1
            reason = "it is a single unit, and a group is never empty" if lone else "it is as small as it may be"
        elif not _is_used(grouping, members[number]):  # places for longer inputs
            reason = "the example inputs reach nothing that makes or reads it"
        if reason:
            leaves = np.concatenate(members.pop(number).leaves)
            grouping.resolution.pin(leaves, reason)
            grouping.unit_of[leaves] = -1


def _is_used(grouping: Grouping, members: _Members) -> bool:
    """Whether something makes or reads the units, or computes with them."""
    observations = grouping.observations
    if any(observations.roles.get(key, set()) & {Role.OUT, Role.IN} for key in members.owned_dims):
        return True
    leaves = np.concatenate(members.leaves)
    counted = (dim.ids for term in observations.terms for dim in term.dims if dim.ids is not None)
    return any(np.isin(column, leaves).any() for ids in counted for column in grouping.resolution.leaves(ids))


def _name_groups(
    grouping: Grouping, members: Mapping[int, _Members], minima: Mapping[int, int], model: nn.Module
) -> None:
    """Make the groups, each with the name of the first layer that makes its units."""
    observations = grouping.observations
    mixed = _marked(grouping.resolution, observations.mixed_units)
    heads = _marked(grouping.resolution, observations.heads)
    recurrent = {path for path, module in model.named_modules() if isinstance(module, (nn.RNNBase, nn.RNNCellBase))}
    times_taken: dict[str, int] = {}
    for number, each in members.items():
        leaves = np.concatenate(each.leaves)
        makers = [key for key in each.owned_dims if Role.OUT in observations.roles.get(key, ())] or each.owned_dims
        name, kind = layer_path(makers[0][0]), "width"
        if any(_is_recurrent(tensor, recurrent) for tensor, _ in each.owned_dims):
            kind = "recurrent"
        elif heads[leaves].any():
            name, kind = f"{name}:heads", "head"
        times_taken[name] = times_taken.get(name, 0) + 1
        if times_taken[name] > 1:
            name = f"{name}:{times_taken[name]}"
        grouping.group_of[leaves] = len(grouping.groups)
        grouping.groups.append(Group(name, len(leaves), kind, bool(mixed[leaves].any()), minima[number]))


def _is_recurrent(tensor: str, recurrent: set[str]) -> bool:
    """Whether a tensor reads the cells of a recurrent layer at the step before."""
    path, attribute = split_path(tensor)
    return path in recurrent and attribute.startswith("weight_hh")


def _marked(resolution: Resolution, marks: Iterable[IntArray]) -> BoolArray:
    """Which leaves own any of the marked labels."""
    flags = np.zeros(len(resolution.root), dtype=np.bool_)
    for ids in marks:
        for column in resolution.leaves(ids):
            flags[column] = True
    return flags


def remembered_sizes(grouping: Grouping, by_rule: Mapping[SizeKey, Dim]) -> tuple[dict[SizeKey, Axis], list[str]]:
    """The axis every remembered size follows, and notes; one that would have to follow different things follows none.

    ``by_rule`` are the dimensions of sizes that a rule knows; others are as observed.
    """
    followed = {key: [grouping.axis(dim)] for key, dim in by_rule.items()}
    for key, vectors in grouping.observations.sizes.items():
        if key not in followed:
            followed[key] = [grouping.axis_of(ids) for ids in vectors]
    axes, notes = {}, []
    for key, candidates in followed.items():
        if all(_same(candidates[0], other) for other in candidates[1:]):
            axes[key] = candidates[0]
        else:
            notes.append(f"{key[0]}.{key[1]} is used as the size of different things; it is left as it is")
    return axes, notes


def _same(one: Axis, two: Axis) -> bool:
    return len(one.parts) == len(two.parts) and all(
        a.group == b.group and np.array_equal(a.units, b.units) for a, b in zip(one.parts, two.parts, strict=True)
    )
