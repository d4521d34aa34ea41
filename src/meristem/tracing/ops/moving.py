"""Operations that only move elements: labels move with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from meristem.tracing.labels import ANY, Dim, constant, dim_of, merged
from meristem.tracing.ops.context import Arguments, Context, Dims, axis_at, plain, tensors_of


def view(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """A view, reshape or flatten."""
    dims, shape = ctx.dims(tensors_of(a)[0]), list(outs[0].shape)
    return [reshape(ctx, dims, shape)]


def reshape(ctx: Context, dims: Dims, shape: list[int]) -> Dims:
    """Cut both shapes into blocks of equal product; merge and split inside each block."""
    result: Dims = []
    start = position = 0
    while start < len(dims) or position < len(shape):
        end, stop = min(start + 1, len(dims)), min(position + 1, len(shape))
        before = int(np.prod([dim.size for dim in dims[start:end]]))
        after = int(np.prod(shape[position:stop]))
        while before != after:
            if before < after:
                before, end = before * dims[end].size, end + 1
            else:
                after, stop = after * shape[stop], stop + 1
        if end == len(dims):
            stop = len(shape)
        if stop == len(shape):
            end = len(dims)
        result.extend(_block(ctx, dims[start:end], shape[position:stop]))
        start, position = end, stop
    return result


def _block(ctx: Context, dims: Dims, sizes: list[int]) -> Dims:
    """What dimensions become that are viewed as others of the same product."""
    if [dim.size for dim in dims] == sizes:
        for dim in dims:
            ctx.viewed([dim])
        return dims
    if not any(dim.labelled for dim in dims):
        return _unlabelled_block(dims, sizes)
    out = ctx.labels.split(plain(ctx.labels.merge(dims)), sizes) if sizes else []
    ctx.viewed(out)
    return out


def _unlabelled_block(dims: Dims, sizes: list[int]) -> Dims:
    """What was repeated stays so: a mask for each sample, repeated for each head, fits any number of heads."""
    parts = [part for dim in dims for part in dim.merged or ((dim.size, dim.constant),)]
    if len(sizes) == 1:
        return [merged(parts)]
    wide = [part for part in parts if part[0] != 1]
    if [size for size, _ in wide] == [size for size in sizes if size != 1]:
        rest = iter(wide)
        return [constant(1) if size == 1 else Dim(size, constant=next(rest)[1]) for size in sizes]
    return [Dim(size, constant=all(repeats for _, repeats in wide)) for size in sizes]


def permute(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Dimensions change their order."""
    dims = ctx.dims(a["self"])
    return [[dims[axis_at(dim, len(dims))] for dim in a["dims"]]]


def transpose(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Two dimensions change places; ``t`` has no numbers of them."""
    dims = list(ctx.dims(a["self"]))
    if len(dims) > 1:
        one, two = axis_at(a.get("dim0", 0), len(dims)), axis_at(a.get("dim1", 1), len(dims))
        dims[one], dims[two] = dims[two], dims[one]
    return [dims]


def expand(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """New dimensions, and those of size one that are repeated, are constant."""
    dims, shape = ctx.dims(a["self"]), outs[0].shape
    result = [constant(size) for size in shape]
    for back in range(1, len(dims) + 1):
        if dims[-back].size == shape[-back]:
            result[-back] = dims[-back]
        else:
            ctx.labels.pin(dims[-back], f"it is expanded in {ctx.where}")
    return [result]


def unsqueeze(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """A new dimension of size one is constant."""
    dims = list(ctx.dims(a["self"]))
    dims.insert(axis_at(a["dim"], len(dims) + 1), constant(1))
    return [dims]


def squeeze(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Dimensions of size one go; what had a unit there is pinned."""
    dims = ctx.dims(a["self"])
    chosen = a.get("dim")
    where = range(len(dims)) if chosen is None else ([chosen] if isinstance(chosen, int) else chosen)
    squeezed = {axis_at(dim, len(dims)) for dim in where if dims and dims[axis_at(dim, len(dims))].size == 1}
    for index in squeezed:
        ctx.labels.pin(dims[index], f"it is squeezed away in {ctx.where}")
    return [[dim for index, dim in enumerate(dims) if index not in squeezed]]


def repeat(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Labels are repeated as often as elements are."""
    dims, times = ctx.dims(a["self"]), a["repeats"]
    dims = [constant(1)] * (len(times) - len(dims)) + dims
    return [[dim if n == 1 else _tile(dim, n) for dim, n in zip(dims, times, strict=True)]]


def _tile(dim: Dim, times: int) -> Dim:
    if dim.ids is None:
        return merged([(times, True), *(dim.merged or ((dim.size, dim.constant),))])
    return dim_of(np.tile(dim.ids, times))


def concatenate(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Labels follow one another along ``dim``; the other dimensions meet."""
    joined = [tensor for tensor in a["tensors"] if tensor.numel() or tensor.dim() > 1]
    parts = [ctx.dims(tensor) for tensor in joined or a["tensors"]]
    at = axis_at(a.get("dim", 0), outs[0].dim())
    result = list(parts[0])
    for other in parts[1:]:
        for index, dim in enumerate(other):
            if index != at:
                result[index] = ctx.labels.unite(
                    result[index], dim, f"it is joined to a fixed dimension in {ctx.where}"
                )
    if any(part[at].labelled for part in parts):
        result[at] = dim_of(np.concatenate([part[at].vector() for part in parts]))
    else:
        # Several constants in a row are told apart by position.
        result[at] = Dim(outs[0].shape[at], constant=len(parts) == 1 and parts[0][at].constant)
    return [[plain(dim) for dim in result]]


def stack(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Tensors meet in all dimensions; the new one counts them."""
    parts = [ctx.dims(tensor) for tensor in a["tensors"]]
    result = list(parts[0])
    for other in parts[1:]:
        result = [
            ctx.labels.unite(dim, more, f"it is stacked on a fixed dimension in {ctx.where}")
            for dim, more in zip(result, other, strict=True)
        ]
    at = axis_at(a.get("dim", 0), outs[0].dim())
    return [[*result[:at], Dim(len(parts)), *result[at:]]]


def split(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Equal parts of a dimension stay equal: a unit is the same index in every part."""
    dims = ctx.dims(a["self"])
    at = axis_at(a.get("dim", 0), len(dims))
    whole = dims[at]
    sizes = [out.shape[at] for out in outs]
    parts: Dims
    if whole.ids is None:
        parts = [Dim(size, constant=whole.constant) for size in sizes]
    elif len(set(sizes)) == 1 and len(sizes) > 1:
        parts = [_united_parts(ctx, whole, len(sizes))] * len(sizes)
    else:
        cuts = np.cumsum(sizes)[:-1]
        parts = [dim_of(ids) for ids in np.split(whole.ids, cuts)]
        for piece in parts:
            ctx.cut(piece)
    ctx.viewed(parts[:1] if len(set(sizes)) == 1 else parts)
    return [[*dims[:at], part, *dims[at + 1 :]] for part in parts]


def _united_parts(ctx: Context, whole: Dim, count: int) -> Dim:
    """One part of a dimension that is cut into ``count`` equal ones, after the same index of all parts is united."""
    pieces = [dim_of(ids) for ids in np.split(whole.vector(), count)]
    part = pieces[0]
    for piece in pieces[1:]:
        part = ctx.labels.unite(part, piece, f"another part of the same dimension is fixed in {ctx.where}")
    return part


def gated_halves(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """``glu``: the two halves of a dimension meet."""
    dims = ctx.dims(a["self"])
    at = axis_at(a.get("dim", -1), len(dims))
    return [[*dims[:at], _united_parts(ctx, dims[at], 2), *dims[at + 1 :]]]


def unbind(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """A dimension is taken apart."""
    dims = ctx.dims(a["self"])
    at = axis_at(a.get("dim", 0), len(dims))
    _told_apart(ctx, dims[at])
    ctx.labels.pin(dims[at], f"its positions are taken apart in {ctx.where}")
    return [[*dims[:at], *dims[at + 1 :]] for _ in outs]


def select(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """One position of a dimension is left, and the dimension goes."""
    dims = ctx.dims(a["self"])
    at = axis_at(a["dim"], len(dims))
    _told_apart(ctx, dims[at], a["index"])
    ctx.labels.pin(dims[at], f"one position is selected in {ctx.where}")
    return [[*dims[:at], *dims[at + 1 :]]]


def _told_apart(ctx: Context, dim: Dim, *positions: int) -> None:
    """Which positions are taken counts where they are not all the same."""
    if not dim.constant:
        for each in (dim, *(replace(dim, size=position) for position in positions)):
            ctx.runs_across(each)


def slice_(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """A part of a dimension, cut out by position."""
    dims = list(ctx.dims(a["self"]))
    at = axis_at(a.get("dim", 0), len(dims))
    size = outs[0].shape[at]
    ids = dims[at].ids
    if size == dims[at].size:
        ctx.cut(dims[at])  # all of it here, and only a part where it is wider
        return [dims]
    begin, end, step = slice(a.get("start"), a.get("end"), a.get("step", 1)).indices(dims[at].size)
    if ids is None:
        _told_apart(ctx, dims[at], begin, end)
        dims[at] = Dim(size, constant=dims[at].constant)
    else:
        dims[at] = dim_of(ids[begin:end:step])
        ctx.cut(dims[at])
        ctx.viewed([dims[at]])
    return [dims]


def pad(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Added positions are constant, removed ones go."""
    dims, amounts = list(ctx.dims(a["self"])), a["pad"]
    for back in range(1, len(amounts) // 2 + 1):
        before, after = amounts[2 * back - 2], amounts[2 * back - 1]
        if not before and not after:
            continue
        ids = dims[-back].ids
        if ids is None:
            dims[-back] = Dim(outs[0].shape[-back])
        elif before < 0 or after < 0:
            dims[-back] = dim_of(ids[max(0, -before) : len(ids) - max(0, -after)])
        else:
            dims[-back] = dim_of(np.pad(ids, (before, after), constant_values=ANY))
    return [dims]
