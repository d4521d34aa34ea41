"""From a record and its resolution to the frozen space: units with the same sites form a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import nn

from meristem.space.arrays import BoolArray, IntArray
from meristem.space.axis import FREE_OF_UNITS, Axis, Part
from meristem.space.space import Attribute, Group, Pinned, Role, Site, Slot, Space, State, TensorSpec, Term
from meristem.tracing.model_copy import named_tensors
from meristem.tracing.observations import Record, TensorDim
from meristem.tracing.resolve import Resolution


@dataclass
class Draft:
    """The space while it is being decided: which leaf is which unit of which group."""

    record: Record
    resolution: Resolution
    group_of: IntArray
    unit_of: IntArray
    groups: list[Group] = field(default_factory=list)
    _axes: dict[int, tuple[IntArray, Axis]] = field(default_factory=dict)

    def axis(self, size: int, ids: IntArray | None) -> Axis:
        """The axis of a dimension with these labels; ask only when all groups are known."""
        if ids is None:
            return Axis(size)
        if id(ids) not in self._axes:
            self._axes[id(ids)] = (ids, self._axis(size, ids))
        return self._axes[id(ids)][1]

    def _axis(self, size: int, ids: IntArray) -> Axis:
        parts = []
        for column in self.resolution.leaves(ids):
            owners = np.where(column > 0, self.group_of[column], -1)
            for number in np.unique(owners[owners >= 0]):
                units = np.where(owners == number, self.unit_of[column], FREE_OF_UNITS)
                parts.append(Part(self.groups[number].name, units))
        return Axis(size, tuple(parts))

    def groups_in(self, ids: IntArray) -> set[str]:
        """The names of the groups that own any of these labels."""
        found: set[str] = set()
        for column in self.resolution.leaves(ids):
            numbers = self.group_of[column[column > 0]]
            found.update(self.groups[number].name for number in np.unique(numbers[numbers >= 0]))
        return found


def draft(record: Record, resolution: Resolution, model: nn.Module, floors: Mapping[TensorDim, int]) -> Draft:
    """Group the free units: those that own the same number of positions of the same dimensions belong together."""
    made = Draft(record, resolution, np.full(len(resolution.root), -1), np.full(len(resolution.root), -1))
    keyed = [(key, dim.ids) for key, dim in record.owned.items() if dim.ids is not None]
    signature = _signatures(
        made,
        [ids for _, ids in keyed] + [d.ids for _, ds, _ in record.terms for d in ds if d.ids is not None],
    )
    members: dict[int, list[IntArray]] = {}
    homes: dict[int, list[TensorDim]] = {}
    for key, ids in keyed:
        for column in resolution.leaves(ids):
            leaves, first = np.unique(column[column > 0], return_index=True)
            leaves = leaves[np.argsort(first)]
            for number in np.unique(signature[leaves]).tolist():
                homes.setdefault(number, []).append(key)
            for number in np.unique(signature[leaves[made.unit_of[leaves] < 0]]).tolist():
                fresh = leaves[(signature[leaves] == number) & (made.unit_of[leaves] < 0)]
                known = members.setdefault(number, [])
                made.unit_of[fresh] = np.arange(len(fresh)) + sum(len(found) for found in known)
                known.append(fresh)
    units = {number: np.concatenate(found) for number, found in members.items()}
    least = {number: _floor(floors, homes[number], len(found)) for number, found in units.items()}
    _drop_fixed(made, units, least)
    _name_groups(made, units, homes, model, least)
    return made


def _signatures(made: Draft, vectors: Sequence[IntArray]) -> IntArray:
    """A hash per leaf of (which vectors, which factor, how many positions) it owns."""
    total = np.zeros(len(made.resolution.root), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for number, ids in enumerate(vectors):
            for factor, column in enumerate(made.resolution.leaves(ids)):
                leaves, counts = np.unique(column[column > 0], return_counts=True)
                key = counts.astype(np.uint64) + np.uint64((number * 16 + factor) << 24)
                total[leaves] += _mixed(key)
    return total.astype(np.int64)


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A well-spread 64-bit hash of every value."""
    mixed = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _floor(floors: Mapping[TensorDim, int], homes: Sequence[TensorDim], units: int) -> int:
    """How few of the units of a group may be live."""
    return max([1, *(min(units, floors[key]) for key in homes if key in floors)])


def _drop_fixed(made: Draft, members: dict[int, IntArray], least: Mapping[int, int]) -> None:
    """Pin what could not lose a unit."""
    for number in list(members):
        if len(members[number]) <= least[number]:
            lone = members.pop(number)
            reason = (
                "it is a single unit, and a group is never empty" if len(lone) == 1 else "it is as small as it may be"
            )
            made.resolution.pin(lone, reason)
            made.unit_of[lone] = -1


def _name_groups(
    made: Draft,
    members: dict[int, IntArray],
    homes: dict[int, list[TensorDim]],
    model: nn.Module,
    least: Mapping[int, int],
) -> None:
    record = made.record
    across, heads = _marked(made.resolution, record.mixes_units), _marked(made.resolution, record.heads)
    recurrent = {path for path, module in model.named_modules() if isinstance(module, (nn.RNNBase, nn.RNNCellBase))}
    taken: dict[str, int] = {}
    for number, leaves in members.items():
        sites = homes[number]
        makers = [key for key in sites if Role.OUT in record.roles.get(key, ())] or sites
        owner = makers[0][0].rpartition(".")[0] or makers[0][0]
        kind = "width"
        if any(
            key[0].rpartition(".")[0] in recurrent and key[0].rpartition(".")[2].startswith("weight_hh")
            for key in sites
        ):
            kind = "recurrent"
        elif heads[leaves].any():
            kind = "head"
        name = owner if kind != "head" else f"{owner}:heads"
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            name = f"{name}:{taken[name]}"
        made.group_of[leaves] = len(made.groups)
        made.groups.append(Group(name, len(leaves), kind, bool(across[leaves].any()), least[number]))


def _marked(resolution: Resolution, marks: Iterable[IntArray]) -> BoolArray:
    """Which leaves own any of the marked labels."""
    flags = np.zeros(len(resolution.root), dtype=np.bool_)
    for ids in marks:
        for column in resolution.leaves(ids):
            flags[column] = True
    return flags


def build(made: Draft, model: nn.Module, sizes: dict[tuple[str, str, int | None], Axis], notes: Sequence[str]) -> Space:
    record = made.record
    tensors = _tensors(model)
    sites = []
    for (name, dim), owned in record.owned.items():
        axis = made.axis(owned.size, owned.ids)
        if axis.parts:
            roles = frozenset(record.roles.get((name, dim), {Role.ALONG}))
            sites.append(Site(name, dim, roles - {Role.ALONG} or frozenset({Role.ALONG}), axis))
    terms = []
    for factor, dims, path in record.terms:
        axes = tuple(made.axis(dim.size, dim.ids) for dim in dims)
        fixed = int(np.prod([axis.size for axis in axes if not axis.parts]))
        terms.append(Term(factor * fixed, tuple(axis for axis in axes if axis.parts), path))
    states = [State(path, tuple(made.axis(dim.size, dim.ids) for dim in dims)) for path, dims in record.states.items()]
    attributes = [Attribute(*key, axis=axis) for key, axis in sizes.items() if axis.parts]
    return Space(
        groups={group.name: group for group in made.groups},
        pinned=_pinned(made),
        tensors=tensors,
        sites=tuple(sites),
        slots=tuple(_slots(record, sites, tensors)),
        attributes=tuple(attributes),
        terms=tuple(terms),
        notes=tuple(notes),
        states=tuple(states),
    )


def remembered_sizes(
    made: Draft, layer_sizes: dict[tuple[str, str, int | None], list[tuple[int, IntArray | None]]]
) -> tuple[dict[tuple[str, str, int | None], Axis], list[str]]:
    """The axis every remembered size follows; one that would have to follow two different things follows none."""
    sizes = {**layer_sizes}
    for key, vectors in made.record.sizes.items():
        sizes.setdefault(key, [(len(ids), ids) for ids in vectors])
    axes, notes = {}, []
    for key, found in sizes.items():
        candidates = [made.axis(size, ids) for size, ids in found]
        if all(_same(candidates[0], other) for other in candidates[1:]):
            axes[key] = candidates[0]
        else:
            notes.append(f"{key[0]}.{key[1]} is used as the size of different things; it is left as it is")
    return axes, notes


def _same(one: Axis, two: Axis) -> bool:
    return len(one.parts) == len(two.parts) and all(
        a.group == b.group and np.array_equal(a.units, b.units) for a, b in zip(one.parts, two.parts, strict=True)
    )


def _tensors(model: nn.Module) -> dict[str, TensorSpec]:
    aliases: dict[int, list[str]] = {}
    for name, tensor in [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]:
        aliases.setdefault(id(tensor), []).append(name)
    parameters = {id(parameter) for parameter in model.parameters()}
    return {
        name: TensorSpec(name, tuple(tensor.shape), id(tensor) in parameters, tuple(aliases[id(tensor)]))
        for name, tensor in named_tensors(model)
    }


def _slots(record: Record, sites: Sequence[Site], tensors: dict[str, TensorSpec]) -> list[Slot]:
    """The attributes through which units are read, where scaling them scales nothing else."""
    slots = []
    for site in sites:
        key = (site.tensor, site.dim)
        readers = record.readers.get(key, set())
        if not tensors[site.tensor].is_parameter:  # a buffer that is multiplied with, such as one of a spectral norm
            continue
        if Role.IN not in site.roles or Role.OUT in site.roles or record.users.get(site.tensor, set()) - readers:
            continue
        for runner in sorted(readers):
            owners = [name.rpartition(".")[0::2] for name in tensors[site.tensor].names]
            own = [held for held in owners if held[0] == runner] or owners[:1]
            slots.append(Slot(runner, own[0][0], own[0][1], site.tensor, site.dim))
    return slots


def _pinned(made: Draft) -> tuple[Pinned, ...]:
    """Every place that makes units which may not change, with the reason."""
    resolution, found = made.resolution, []
    for (name, dim), owned in made.record.owned.items():
        if owned.ids is None or Role.OUT not in made.record.roles.get((name, dim), ()):
            continue
        classes = resolution.root[owned.ids[owned.ids > 0]]
        free = np.zeros(len(classes), dtype=np.bool_)
        for column in resolution.leaves(owned.ids[owned.ids > 0]):
            free |= column > 0
        if free.all():
            continue
        held = classes[~free]
        reason = next((resolution.reasons[n] for n in _pin_numbers(resolution, held) if n), "it cannot change")
        path = name.rpartition(".")[0] or name
        found.append(Pinned(path, len(np.unique(held)), reason))
    return tuple(found)


def _pin_numbers(resolution: Resolution, classes: IntArray) -> list[int]:
    numbers = [*np.unique(resolution.pinned[classes]).tolist()]
    for factor in (resolution.row[classes], resolution.column[classes]):
        numbers += np.unique(resolution.pinned[factor[factor > 0]]).tolist()
    return numbers
