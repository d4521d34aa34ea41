"""What a rule works with: the operation's arguments by name, its real outputs, and the context of the run.

A rule returns the dimensions of every output. ``run_context.py`` implements the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from meristem.tracing.labels import Dim, Labels

UNKNOWN = "meristem does not know the operation"  # so a reason begins

Dims = list[Dim]
Arguments = dict[str, Any]
OpRuleFunction = Callable[["Context", Arguments, Sequence[Tensor]], Sequence[Dims]]


class Context(Protocol):
    """What a rule may use while one operation runs."""

    labels: Labels
    where: str  # the operation and the module it runs in, for reasons: "mm in head"

    def dims(self, tensor: Tensor) -> Dims:
        """The dimensions of a tensor, with the labels they carry."""

    def meet(self, one: Dim, two: Dim) -> Dim:
        """The dimension in which two meet position by position: their units are the same, or it is pinned."""

    def pin(self, dim: Dim, reason: str) -> None:
        """Say that no unit of ``dim`` may go; the operation is added to the reason."""

    def fixed(self, size: int) -> Dim:
        """A dimension without units."""

    def owned(self, tensor: Tensor, dim: int, like: Dim) -> Dim:
        """A dimension of a parameter that goes along with ``like``: it has the same units from the start."""

    def reads(self, dim: Dim) -> None:
        """Record that the operation reads units along ``dim``, if that is a dimension of the model's own tensors."""

    def makes(self, dim: Dim) -> None:
        """Record that the operation makes units along ``dim``, if that is a dimension of the model's own tensors."""

    def mixes_units(self, dim: Dim) -> None:
        """Record that the operation runs across the units of ``dim``, so that they see each other, and its size."""

    def runs_across(self, dim: Dim) -> None:
        """Record that the result depends on all positions of ``dim``: if it has no units, its size counts."""

    def heads(self, dim: Dim) -> None:
        """Record that the units of ``dim`` are heads: a batch of matrix products."""

    def term(self, factor: int, dims: Sequence[Dim]) -> None:
        """Record a cost: ``factor`` times the sizes of ``dims`` multiply-adds."""

    def remember(self, names: Sequence[str], dim: Dim, index: int | None = None) -> None:
        """Record that these attributes of the running module follow ``dim``, if they have its size."""

    def viewed(self, dims: Sequence[Dim]) -> None:
        """Record the dimensions that a view has just made; attributes of the running module may follow them."""

    def cut(self, part: Dim) -> None:
        """Record that ``part`` was cut out of a dimension by position."""

    def divided(self, count: Dim) -> None:
        """Record that the code divides a dimension into as many parts as ``count`` has positions."""

    def positions(self, tensor: Tensor, dims: Sequence[Dim]) -> None:
        """Record that the numbers in ``tensor`` are positions along ``dims``."""


def fixed(tensor: Tensor) -> Dims:
    """The dimensions of a tensor that has no units."""
    return [Dim(size) for size in tensor.shape]


def tensors_of(arguments: Arguments) -> list[Tensor]:
    """All tensors among the arguments, also those in lists."""
    tensors: list[Tensor] = []
    for value in arguments.values():
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors.extend(item for item in value if isinstance(item, Tensor))
    return tensors


def axis_at(dim: int, rank: int) -> int:
    """The index of a dimension, which may be counted from the end."""
    return dim % rank if rank else 0


def plain(dim: Dim) -> Dim:
    """The same labels, no longer traceable to a tensor of the model."""
    return Dim(dim.size, dim.ids, dim.constant, merged=dim.merged)


def unknown_dims(ctx: Context, a: Arguments, out: Tensor) -> Dims:
    """What is not understood pins everything it touches."""
    for tensor in tensors_of(a):
        for dim in ctx.dims(tensor):
            ctx.runs_across(dim)
            ctx.labels.pin(dim, f"{UNKNOWN} {ctx.where}")
    return fixed(out)
