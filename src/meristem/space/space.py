"""The space: a frozen description of what in a model may grow and shrink, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType

import numpy as np

from meristem.space.arrays import BoolArray
from meristem.space.axis import Axis, Part
from meristem.space.paths import ancestors, layer_path
from meristem.space.table import GroupRow, PinnedRow, space_table

DEPTH = "depth"  # the kind of a group whose one unit is a whole block


class Role(Enum):
    """How a site meets its units."""

    OUT = "out"  # the unit is made here
    IN = "in"  # the unit is read here
    ALONG = "along"  # the unit passes by: a norm, a depthwise filter, a running statistic


@dataclass(frozen=True)
class Site:
    """One dimension of one tensor of the model that units own positions of."""

    tensor: str
    dim: int
    roles: frozenset[Role]
    axis: Axis = field(compare=False)


@dataclass(frozen=True)
class Slot:
    """A module attribute through which units are read; a gate scales ``dim`` of it while ``runner`` runs.

    Where only buffers read a unit, it is the scale or the shift of the layer that passes the unit along.
    """

    runner: str
    owner: str
    name: str
    tensor: str
    dim: int


@dataclass(frozen=True)
class Attribute:
    """A size that a module remembers (``in_channels``, ``num_heads``, ...) and the axis it must follow."""

    module: str
    name: str
    index: int | None
    axis: Axis = field(compare=False)


@dataclass(frozen=True)
class Group:
    """Units that live and die together with all they own.

    ``kind`` is ``width``, ``head``, ``recurrent`` or ``depth``: a group of one unit, a block, which may be absent.
    ``mixes_units`` says that a norm, mean or softmax runs across the units, or the scale of a softmax is computed from
    how many there are, so that what one unit computes depends on which others are live. ``min_units`` is how few units
    may be live.
    """

    name: str
    units: int
    kind: str
    mixes_units: bool = False
    min_units: int = 1


@dataclass(frozen=True)
class Block:
    """A block that may be absent: the group it is the unit of, where it is, and how it is left out.

    A ``plain`` one has no shortcut: nothing of what goes in comes out but through its weights.
    """

    group: str
    path: str
    way: str
    plain: bool = False


@dataclass(frozen=True)
class Stage:
    """Blocks that follow one another: those that may be absent, and how many never are."""

    name: str
    blocks: tuple[Block, ...]
    fixed: int


@dataclass(frozen=True)
class Pinned:
    """A set of coupled positions that may not change, with the reason."""

    name: str
    units: int
    reason: str


@dataclass(frozen=True)
class Term:
    """One contraction: ``factor`` times the live sizes of ``axes`` multiply-adds."""

    factor: int
    axes: tuple[Axis, ...] = field(compare=False)
    module: str = ""


@dataclass(frozen=True)
class State:
    """One tensor of the state that a model returns and is given at the next call: its place in it, and its axes."""

    path: str
    axes: tuple[Axis, ...] = field(compare=False)

    def __str__(self) -> str:
        return f"{self.path}: {', '.join(map(str, self.axes))}"


@dataclass(frozen=True)
class SizedNumber:
    """A plain number that the model computes from a size that it runs across: the scale of a softmax.

    The full model has ``number`` in the operation ``where`` ("mul in layers.0"); it goes with the ``power`` of the size
    of ``axis``.
    """

    where: str
    number: float
    axis: Axis = field(compare=False)
    power: float

    def factor(self, masks: Mapping[str, BoolArray]) -> float:
        """How many times the number of the full model it is where only these units are live."""
        return float((self.axis.live(masks).sum() / self.axis.size) ** self.power)


@dataclass(frozen=True)
class Cost:
    """The price of a network: parameters, and multiply-adds of one forward pass of the example inputs."""

    params: int
    macs: int


@dataclass(frozen=True)
class TensorSpec:
    """A parameter or buffer of the full-size model: its shape, and every name under which the model holds it."""

    name: str
    shape: tuple[int, ...]
    is_parameter: bool
    names: tuple[str, ...]


@dataclass(frozen=True)
class Space:
    """What :func:`meristem.trace` returns. Frozen; the model is not referenced from here."""

    groups: Mapping[str, Group]
    pinned: tuple[Pinned, ...]
    tensors: Mapping[str, TensorSpec]
    sites: tuple[Site, ...]
    slots: tuple[Slot, ...]
    attributes: tuple[Attribute, ...]
    terms: tuple[Term, ...]
    notes: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    carried: int | str | None = None  # the place of the state among the model's inputs and outputs
    states: tuple[State, ...] = ()
    numbers: tuple[SizedNumber, ...] = ()  # that follow a size
    outputs: int | str | tuple[int | str, ...] | None = None  # that keep their size; None: as trace chooses
    costs: tuple[Cost, Cost] | None = None  # of the smallest and of the full network
    _axes: Mapping[str, tuple[Axis, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", MappingProxyType(dict(self.groups)))
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        axes = {name: [Axis(size) for size in tensor.shape] for name, tensor in self.tensors.items()}
        for site in self.sites:
            axes[site.tensor][site.dim] = site.axis
        object.__setattr__(self, "_axes", {name: tuple(dims) for name, dims in axes.items()})

    @property
    def full(self) -> dict[str, int]:
        """The width of every group in the full model."""
        return {name: group.units for name, group in self.groups.items()}

    @property
    def smallest(self) -> dict[str, int]:
        """The smallest network of the space: one unit in nearly every group, and no block that may be absent."""
        return {name: group.min_units for name, group in self.groups.items()}

    @cached_property
    def factors(self) -> Mapping[str, int]:
        """How many groups a dimension is the product of, at most, by group: 2 for heads and what is inside of them.

        Where each of k groups keeps a share s of its units, s ** k of the dimension is left.
        """
        most = dict.fromkeys(self.groups, 1)
        for axis in {id(site.axis): site.axis for site in self.sites}.values():
            parts = self.unit_parts(axis)
            owners = np.sum([part.units >= 0 for part in parts], axis=0)
            for part in parts if len(parts) > 1 else ():
                most[part.group] = max(most[part.group], int(owners[part.units >= 0].max(initial=1)))
        return most

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        """The block of every depth group."""
        return {block.group: block for stage in self.stages for block in stage.blocks}

    @cached_property
    def enclosing_block(self) -> Mapping[str, str]:
        """The depth group of the block that a group lies in, for every group that lies wholly in one block."""
        depth_groups = {block.path: group for group, block in self.blocks.items()}
        surroundings: dict[str, set[str | None]] = {}
        for site in self.sites:
            around = next((depth_groups[path] for path in ancestors(site.tensor) if path in depth_groups), None)
            for group in site.axis.groups:
                surroundings.setdefault(group, set()).add(around)
        return {
            group: block
            for group, blocks in surroundings.items()
            if len(blocks) == 1 and (block := next(iter(blocks))) is not None and group != block
        }

    @cached_property
    def ungated_groups(self) -> frozenset[str]:
        """The groups that no weight reads, so that they have no gate: dimensions where queries meet keys, say."""
        gated = {part.group for slot in self.slots for part in self.unit_parts(self.axes(slot.tensor)[slot.dim])}
        return frozenset(self.groups).difference(gated, self.blocks)

    def inactive_groups(self, live: Mapping[str, BoolArray | float]) -> frozenset[str]:
        """The groups that lie in absent blocks, where ``live`` holds the mask or the width of every group."""
        return frozenset(group for group, block in self.enclosing_block.items() if not np.any(live[block]))

    def axes(self, tensor: str) -> tuple[Axis, ...]:
        """The axes of all dimensions of a tensor of the model."""
        return self._axes[tensor]

    def unit_parts(self, axis: Axis) -> tuple[Part, ...]:
        """The parts of an axis that units own; those that belong to blocks are left out."""
        return tuple(part for part in axis.parts if part.group not in self.blocks)

    @cached_property
    def _sites_of_group(self) -> Mapping[str, list[Site]]:
        """The sites of every group, in order; sorted once, because a deep network has many of both."""
        sites: dict[str, list[Site]] = {}
        for site in self.sites:
            for group in site.axis.groups:
                sites.setdefault(group, []).append(site)
        return sites

    def coupled(self, group: str) -> tuple[list[str], list[str], list[str]]:
        """The modules that make the units of a group, pass them along, and read them."""
        modules: dict[Role, dict[str, None]] = {role: {} for role in Role}
        for site in self._sites_of_group.get(group, ()):
            for role in site.roles:
                modules[role][layer_path(site.tensor)] = None
        makers, readers = modules[Role.OUT], modules[Role.IN]
        along = [name for name in modules[Role.ALONG] if name not in makers and name not in readers]
        return list(makers), along, list(readers)

    @property
    def group_params_frac(self) -> dict[str, float]:
        """For every group the share of the model's parameters that its units own, alone or with other groups."""
        total = sum(_numel(tensor) for tensor in self.tensors.values() if tensor.is_parameter)
        shares = dict.fromkeys(self.groups, 0.0)
        for name, tensor in self.tensors.items():
            if tensor.is_parameter:
                for group in {group for axis in self.axes(name) for group in axis.groups}:
                    free = np.prod([axis.size - int(axis.owned(group).sum()) for axis in self.axes(name)])
                    shares[group] += (_numel(tensor) - int(free)) / total
        return shares

    @property
    def free_params_frac(self) -> float:
        """The share of the parameters that lie in free groups: that some plan would take away."""
        total = fixed = 0
        for name, tensor in self.tensors.items():
            if tensor.is_parameter:
                total += _numel(tensor)
                fixed += int(np.prod([int((~axis.owned()).sum()) for axis in self.axes(name)]))
        return 1.0 - fixed / total if total else 0.0

    def __str__(self) -> str:
        shares = self.group_params_frac
        rows = [
            GroupRow(name, group.kind, group.mixes_units, group.units, shares[name], *self.coupled(name))
            for name, group in self.groups.items()
        ]
        footer = [f"note: {note}" for note in self.notes]
        if self.costs is not None:
            small, full = self.costs
            free = f"{self.free_params_frac:.1%} of them lie in free groups"
            footer += [
                "",
                f"parameters  {small.params:,} to {full.params:,}; {free}",
                f"macs        {small.macs:,} to {full.macs:,} for the example inputs",
            ]
        return space_table(rows, [PinnedRow(each.name, each.units, each.reason) for each in self.pinned], footer)


def _numel(tensor: TensorSpec) -> int:
    return math.prod(tensor.shape)
