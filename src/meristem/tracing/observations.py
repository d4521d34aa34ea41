"""What is learnt from running a model with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from meristem.space.arrays import IntArray
from meristem.space.space import Role
from meristem.tracing.labels import Dim, Labels
from meristem.tracing.ops.context import Dims

TensorDim = tuple[str, int]  # the name of a tensor of the model, and one of its dimensions
SizeKey = tuple[str, str, int | None]  # module path, attribute, and which entry if it is a tuple


@dataclass
class GridView:
    """A dimension that module ``path`` views as rows and columns (heads and head dimensions, usually).

    ``rows`` and ``columns`` are labels; ``inputs`` are the dimensions of what the module was called with.
    """

    path: str
    layer: type[nn.Module]
    rows: IntArray
    columns: IntArray
    inputs: list[Dim]


@dataclass(frozen=True)
class ShapeKeepingCall:
    """One call of a module that maps a tensor to one of the same shape: the dimensions before and after it.

    ``alone``: there was no other argument and no other result. ``overwritten``: it changed its input in place.
    """

    before: Dims
    after: Dims
    alone: bool
    overwritten: bool
    model_call: int  # the call of the model in which it happened


@dataclass(frozen=True)
class CostTerm:
    """``factor`` times the sizes of ``dims`` multiply-adds in module ``path``."""

    factor: int
    dims: tuple[Dim, ...]
    path: str


@dataclass
class Observations:
    """Everything that is learnt from running a model; several runs add to the same observations."""

    labels: Labels
    model_calls: int = 0
    owned: dict[TensorDim, Dim] = field(default_factory=dict)  # the labels of the model's own tensors
    roles: dict[TensorDim, set[Role]] = field(default_factory=dict)
    readers: dict[TensorDim, set[str]] = field(default_factory=dict)  # the modules that read units there
    users: dict[str, set[str]] = field(default_factory=dict)  # the modules in which each tensor is used
    sizes: dict[SizeKey, list[IntArray]] = field(default_factory=dict)  # the labels that a remembered size counts
    terms: list[CostTerm] = field(default_factory=list)
    grids: list[GridView] = field(default_factory=list)
    lone_views: list[GridView] = field(default_factory=list)  # of one dimension with units: it has one column
    mixed_units: list[IntArray] = field(default_factory=list)  # labels across which a norm, mean or softmax runs
    run_across: dict[str, dict[int, IntArray]] = field(default_factory=dict)  # labels, by module; by their id
    heads: list[IntArray] = field(default_factory=list)  # labels that count heads
    unknown: dict[str, str] = field(default_factory=dict)  # operations without a rule, and where each was met
    cuts: dict[str, list[IntArray]] = field(default_factory=dict)  # what was cut out by position, by place
    states: dict[str, Dims] = field(default_factory=dict)  # of every tensor of the state that is carried on
    watched: set[str] = field(default_factory=set)  # modules that may turn out to be blocks
    calls: dict[str, list[ShapeKeepingCall | None]] = field(default_factory=dict)  # of those; None: another shape
    met_outside: set[str] = field(default_factory=set)  # those whose result meets their input afterwards


NUMBER_OF_A_SIZE = "a number in the computation depends on its size"


class OpError(Exception):
    """An operation raised, or its labels did not fit; ``dims`` are those of its inputs."""

    def __init__(self, message: str, where: str, dims: Sequence[Dim]) -> None:
        super().__init__(message)
        self.where, self.dims = where, list(dims)
