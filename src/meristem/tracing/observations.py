"""What is learnt from running a model with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from meristem.space.arrays import IntArray
from meristem.space.space import Role
from meristem.tracing.labels import Dim, Labels
from meristem.tracing.ops.context import Dims

TensorDim = tuple[str, int]


@dataclass
class Grid:
    """A dimension that module ``path`` views as rows and columns (heads and head dimensions, usually)."""

    path: str
    layer: type[nn.Module]
    rows: IntArray
    columns: IntArray
    inputs: list[Dim]


@dataclass(frozen=True)
class Passage:
    """One call of a module that maps a tensor to one of the same shape: the dimensions before and after it.

    ``alone``: there was no other argument and no other result. ``spoiled``: what went in was overwritten.
    """

    before: Dims
    after: Dims
    alone: bool
    spoiled: bool
    run: tuple[int, int]  # which run, which call in it


@dataclass
class Record:
    """Everything that is learnt from running a model; several runs add to the same record."""

    labels: Labels
    owned: dict[TensorDim, Dim] = field(default_factory=dict)
    roles: dict[TensorDim, set[Role]] = field(default_factory=dict)
    readers: dict[TensorDim, set[str]] = field(default_factory=dict)
    users: dict[str, set[str]] = field(default_factory=dict)
    sizes: dict[tuple[str, str, int | None], list[IntArray]] = field(default_factory=dict)
    terms: list[tuple[int, tuple[Dim, ...], str]] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    mixes_units: list[IntArray] = field(default_factory=list)
    heads: list[IntArray] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    cuts: dict[str, list[IntArray]] = field(default_factory=dict)
    states: dict[str, Dims] = field(default_factory=dict)  # of every tensor of the state that is carried on
    watched: set[str] = field(default_factory=set)  # modules whose passages are of interest
    passages: dict[str, list[Passage | None]] = field(default_factory=dict)  # None: a call that is none
    added: set[str] = field(default_factory=set)  # those whose result meets their input afterwards


class OpError(Exception):
    """An operation raised, or its labels did not fit; ``dims`` are those of its inputs."""

    def __init__(self, message: str, where: str, dims: Sequence[Dim]) -> None:
        super().__init__(message)
        self.where, self.dims = where, list(dims)
        self.training = False
        self.plan = 0


class Step:
    """One executed operation, as kept by a listener: the arguments and results are the real tensors."""

    __slots__ = ("arguments", "func", "kwargs", "outs", "where")

    def __init__(self, func: Any, arguments: Any, kwargs: Any, outs: Any, where: str) -> None:
        self.func, self.arguments, self.kwargs, self.outs, self.where = func, arguments, kwargs, outs, where
