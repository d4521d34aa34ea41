"""The space: a frozen description of what in a model may grow and shrink, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

import numpy as np

from meristem.space.axis import Axis
from meristem.space.table import space_table


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
    """A module attribute through which units are read; a gate scales ``dim`` of it while ``runner`` runs."""

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

    ``kind`` is ``width``, ``head`` or ``recurrent``. ``across`` says that a norm, mean or softmax runs across the
    units, so that what one unit computes depends on which others are live.
    """

    name: str
    units: int
    kind: str
    across: bool = False


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
class Cost:
    """The price of a network: parameters, and multiply-adds of one forward pass of the example inputs."""

    params: int
    macs: int


@dataclass(frozen=True)
class Tensor:
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
    tensors: Mapping[str, Tensor]
    sites: tuple[Site, ...]
    slots: tuple[Slot, ...]
    attributes: tuple[Attribute, ...]
    terms: tuple[Term, ...]
    notes: tuple[str, ...] = ()
    costs: tuple[Cost, Cost] | None = None  # of the smallest and of the full network
    _axes: Mapping[str, tuple[Axis, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", MappingProxyType(dict(self.groups)))
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        axes = {name: [Axis(size) for size in tensor.shape] for name, tensor in self.tensors.items()}
        for site in self.sites:
            axes[site.tensor][site.dim] = site.axis
        object.__setattr__(self, "_axes", {name: tuple(found) for name, found in axes.items()})

    @property
    def full(self) -> dict[str, int]:
        """The width of every group in the full model."""
        return {name: group.units for name, group in self.groups.items()}

    @property
    def smallest(self) -> dict[str, int]:
        """The narrowest network of the space: one unit in every group."""
        return dict.fromkeys(self.groups, 1)

    def axes(self, tensor: str) -> tuple[Axis, ...]:
        """The axes of all dimensions of a tensor of the model."""
        return self._axes[tensor]

    def coupled(self, group: str) -> tuple[list[str], list[str], list[str]]:
        """The modules that make the units of a group, pass them along, and read them."""
        found: dict[Role, dict[str, None]] = {role: {} for role in Role}
        for site in self.sites:
            if group in site.axis.groups:
                for role in site.roles:
                    found[role][site.tensor.rpartition(".")[0] or site.tensor] = None
        makers, readers = found[Role.OUT], found[Role.IN]
        along = [name for name in found[Role.ALONG] if name not in makers and name not in readers]
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
        return space_table(self)


def _numel(tensor: Tensor) -> int:
    return math.prod(tensor.shape)
