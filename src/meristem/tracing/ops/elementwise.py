"""Operations that act element by element, or make constants."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from meristem.tracing.labels import constant
from meristem.tracing.ops.context import Arguments, Context, Dims, axis_at, fixed, plain, tensors_of, unknown_dims


def pointwise(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Operands meet position by position, aligned at the last dimension."""
    operands = [ctx.dims(tensor) for tensor in tensors_of(a)]
    shape = outs[0].shape
    result: Dims = []
    for back in range(len(shape), 0, -1):
        meeting = [dims[-back] for dims in operands if len(dims) >= back]
        joined = meeting[0] if meeting else constant(shape[-back])
        for other in meeting[1:]:
            joined = ctx.labels.unite(joined, other, f"it meets a fixed dimension in {ctx.where}")
        result.append(plain(joined) if len(operands) > 1 else joined)
    return [result for _ in outs]


def same(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """The first tensor's dimensions, for every output of its shape."""
    dims = ctx.dims(tensors_of(a)[0])
    return [dims if len(dims) == out.dim() else fixed(out) for out in outs]


def quantised(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Rounded as quantising would: by one scale, or by one for each position along ``axis``."""
    dims = list(ctx.dims(a["self"]))
    if a.get("axis") is not None:
        at = axis_at(a["axis"], len(dims))
        for name in ("scale", "zero_point"):
            mine = ctx.owned(a[name], 0, dims[at])
            dims[at] = plain(ctx.labels.unite(dims[at], mine, f"it is quantised in {ctx.where}"))
    return [dims for _ in outs]


def restrided(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """``as_strided`` to the same shape only changes the memory format."""
    if outs[0].shape == a["self"].shape:
        return [ctx.dims(a["self"])]
    return [unknown_dims(ctx, a, outs[0])]


def made_of_constants(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """The same everywhere, or alike: it fits any units."""
    return [[constant(size) for size in out.shape] for out in outs]


def drawn(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Random numbers are alike at all positions, unless tensors say how they are drawn."""
    return unknown(ctx, a, outs) if tensors_of(a) else made_of_constants(ctx, a, outs)


def copied_into(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """``x.copy_(y)``: what is written meets what was there, though nothing of that is left."""
    into, source = list(ctx.dims(a["self"])), ctx.dims(a["src"])
    for back in range(1, len(source) + 1):
        reason = f"it is written into a fixed dimension in {ctx.where}"
        into[-back] = plain(ctx.labels.unite(into[-back], source[-back], reason))
    return [into]


def unknown(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """What is not understood pins all that it touches."""
    return [unknown_dims(ctx, a, out) for out in outs]


def nothing(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """The results have no units: numbers by position, or none at all."""
    return [fixed(out) for out in outs]
