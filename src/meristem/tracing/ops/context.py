"""What a rule works with: the operation's arguments by name, its real outputs, and the context of the run.

A rule returns the dimensions of every output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from meristem.tracing.labels import Dim, Labels

Dims = list[Dim]
Arguments = dict[str, Any]
OpRuleFunction = Callable[["Context", Arguments, Sequence[Tensor]], list[Dims]]


class Context(Protocol):
    """What a rule may use while one operation runs."""

    labels: Labels
    where: str

    def dims(self, tensor: Tensor) -> Dims: ...
    def owned(self, tensor: Tensor, dim: int, like: Dim) -> Dim: ...
    def reads(self, dim: Dim) -> None: ...
    def makes(self, dim: Dim) -> None: ...
    def mixes_units(self, dim: Dim) -> None: ...
    def heads(self, dim: Dim) -> None: ...
    def term(self, factor: int, dims: Sequence[Dim]) -> None: ...
    def remember(self, names: Sequence[str], dim: Dim, index: int | None = None) -> None: ...
    def viewed(self, dims: Sequence[Dim]) -> None: ...
    def cut(self, part: Dim) -> None: ...
    def positions(self, tensor: Tensor, dims: Sequence[Dim]) -> None: ...


def fixed(tensor: Tensor) -> Dims:
    return [Dim(size) for size in tensor.shape]


def tensors_of(arguments: Arguments) -> list[Tensor]:
    found: list[Tensor] = []
    for value in arguments.values():
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if isinstance(item, Tensor))
    return found


def axis_at(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


def plain(dim: Dim) -> Dim:
    """The same labels, no longer traceable to a tensor of the model."""
    return Dim(dim.size, dim.ids, dim.constant, merged=dim.merged)


def unknown_dims(ctx: Context, a: Arguments, out: Tensor) -> Dims:
    """What is not understood pins everything it touches."""
    for tensor in tensors_of(a):
        for dim in ctx.dims(tensor):
            ctx.labels.pin(dim, f"meristem does not know the operation {ctx.where}")
    return fixed(out)
