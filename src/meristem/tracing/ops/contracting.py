"""Operations that multiply and add: matrix products, attention, convolutions. They make the cost terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from meristem.tracing.labels import Dim, constant, dim_of
from meristem.tracing.ops.context import Arguments, Context, Dims, fixed, plain


def contraction(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Matrix products, batched or not, with or without an added term."""
    first, second = _factors(a)
    left, right = ctx.dims(first), ctx.dims(second)
    rows, inner = (left[:-1], left[-1]) if len(left) < 3 else (left[1:-1], left[-1])
    summed, columns = (right[0], right[1:]) if len(right) < 3 else (right[1], right[2:])
    batch: Dims = []
    if len(left) == 3:
        batch = [ctx.labels.unite(left[0], right[0], f"it is a batch of fixed size in {ctx.where}")]
        ctx.heads(batch[0])
    contracted = ctx.labels.unite(inner, summed, f"it is contracted with a fixed dimension in {ctx.where}")
    ctx.runs_across(contracted)
    for dim in (inner, summed):
        ctx.reads(dim)
    for dim in (*rows, *columns):
        ctx.makes(dim)
    ctx.term(1, [*batch, *rows, contracted, *columns])
    result = [plain(dim) for dim in (*batch, *rows, *columns)]
    if a.get("self") is not None and a["self"] is not first:
        added = ctx.dims(a["self"])
        for back in range(1, len(added) + 1):
            reason = f"it meets a fixed dimension in {ctx.where}"
            result[-back] = plain(ctx.labels.unite(result[-back], added[-back], reason))
    return [result]


def _factors(a: Arguments) -> tuple[Tensor, Tensor]:
    """The two tensors that are multiplied; their names differ from operation to operation."""
    for names in (
        ("mat1", "mat2"),
        ("batch1", "batch2"),
        ("mat", "vec"),
        ("self", "mat2"),
        ("self", "vec"),
        ("self", "tensor"),
        ("self", "other"),
    ):
        if all(isinstance(a.get(name), Tensor) for name in names):
            return a[names[0]], a[names[1]]
    raise KeyError("operands")


def grouped_product(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Rows in consecutive groups, each multiplied by a matrix of its own: the experts of a mixture."""
    rows, weight = ctx.dims(a["self"]), ctx.dims(a["mat2"])
    if len(rows) != 2 or len(weight) != 3:
        raise ValueError("only rows in groups times a matrix for each group is followed")
    experts, summed, columns = weight
    _in_blocks(ctx, summed, a["mat2"])
    if a["mat2"].stride(-1) == 1:  # otherwise its columns are not one after the other
        _in_blocks(ctx, columns, a["mat2"])
    ctx.labels.pin(experts, f"its experts are chosen by number in {ctx.where}")
    ctx.labels.pin(rows[0], f"its positions are in groups in {ctx.where}")
    contracted = ctx.labels.unite(rows[1], summed, f"it is contracted with a fixed dimension in {ctx.where}")
    for dim in (rows[1], summed):
        ctx.reads(dim)
    ctx.makes(columns)
    ctx.term(1, [rows[0], contracted, columns])
    if a.get("bias") is not None:
        columns = ctx.labels.unite(columns, ctx.dims(a["bias"])[-1], f"it meets a fixed dimension in {ctx.where}")
    return [[plain(rows[0]), plain(columns)]]


def _in_blocks(ctx: Context, dim: Dim, weight: Tensor) -> None:
    """Make blocks of positions the units of ``dim``: torch wants rows of the grouped product to be full 16 bytes."""
    size = 16 // weight.element_size()
    if dim.ids is None or dim.size % size:
        return
    blocks = dim.ids.reshape(-1, size)
    first = dim_of(np.repeat(blocks[:, 0], size))
    ctx.labels.unite(first, dim, f"it is in a block of {size} positions in {ctx.where}")


def trilinear(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Three tensors, each expanded by some dimensions, multiplied and summed over some: ``nn.Bilinear``."""
    met: Dims = []
    for name, expanded in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        dims = list(ctx.dims(a[name]))
        for at in sorted(a[expanded]):
            dims.insert(at, constant(1))
        _note_roles(ctx, [dim for at, dim in enumerate(dims) if at not in a[expanded]], dims, a["sumdim"])
        reason = f"it meets a fixed dimension in {ctx.where}"
        met = [ctx.labels.unite(one, two, reason) for one, two in zip(met, dims, strict=True)] if met else dims
    ctx.term(1, met)
    return [[plain(dim) for at, dim in enumerate(met) if at not in a["sumdim"]]]


def _note_roles(ctx: Context, own: Dims, dims: Dims, summed: Sequence[int]) -> None:
    """Note for the dimensions that a tensor has itself whether units are read or made there."""
    for at, dim in enumerate(dims):
        if any(dim is mine for mine in own):
            (ctx.reads if at in summed else ctx.makes)(dim)


def distances(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """The distance of every row of one tensor to every row of another."""
    *batch, rows, inner = ctx.dims(a["x1"])
    *other_batch, columns, other_inner = ctx.dims(a["x2"])
    reason = f"it meets a fixed dimension in {ctx.where}"
    more = len(batch) - len(other_batch)
    batch, other_batch = [constant(1)] * -more + batch, [constant(1)] * more + other_batch
    shared = [ctx.labels.unite(one, two, reason) for one, two in zip(batch, other_batch, strict=True)]
    contracted = ctx.labels.unite(inner, other_inner, reason)
    ctx.mixes_units(contracted)
    ctx.makes(columns)
    ctx.term(1, [*shared, rows, contracted, columns])
    return [[plain(dim) for dim in (*shared, rows, columns)]]


def attention(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Fused scaled dot-product attention on (..., heads, length, size)."""
    query, key, value = (ctx.dims(a[name]) for name in ("query", "key", "value"))
    batch = []
    reason = f"it is a batch of fixed size in {ctx.where}"
    for q, k, v in zip(query[:-2], key[:-2], value[:-2], strict=True):
        shared = ctx.labels.unite(k, v, reason)
        if q.size > shared.size > 1:  # grouped queries: several query heads read one key and value head
            readers, each = ctx.labels.split(plain(q), [shared.size, q.size // shared.size])
            ctx.labels.pin(each, f"it counts the queries of a group in {ctx.where}")
            ctx.labels.unite(readers, shared, reason)
            batch.append(q)
        else:
            batch.append(ctx.labels.unite(q, shared, reason))
        ctx.heads(batch[-1])
    inner = ctx.labels.unite(query[-1], key[-1], f"it is contracted with a fixed dimension in {ctx.where}")
    if a.get("scale") is None:
        ctx.mixes_units(inner)  # the scale of the softmax is that of their number
    length = ctx.labels.unite(key[-2], value[-2], f"it meets a fixed dimension in {ctx.where}")
    for dim in (inner, length):
        ctx.runs_across(dim)
    scores = [*batch, query[-2], length]
    masks = [ctx.dims(a[name]) for name in ("attn_mask", "attn_bias") if a.get(name) is not None]
    for dim, masked in [pair for mask in masks for pair in zip(scores[-len(mask) :], mask, strict=True)]:
        ctx.labels.unite(dim, masked, f"it meets a fixed dimension of the mask in {ctx.where}")
    ctx.term(1, [*batch, query[-2], inner, length])
    ctx.term(1, [*batch, query[-2], length, value[-1]])
    result = [plain(dim) for dim in (*batch, query[-2], value[-1])]
    return [result if out.dim() == len(result) else fixed(out) for out in outs]


def convolution(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Plain, grouped, depthwise and transposed convolutions of any number of spatial dimensions."""
    dims, weight = ctx.dims(a["input"]), a["weight"]
    kernel = list(weight.shape[2:])
    at = len(dims) - len(kernel) - 1
    batch, channels, places = dims[:at], dims[at], dims[at + 1 :]
    if _is_pointwise(a, kernel):
        sampled = list(places)
    else:
        for dim in places:
            ctx.runs_across(dim)
            ctx.labels.pin(dim, f"it is a spatial dimension of {ctx.where}")
        sampled = [Dim(size) for size in outs[0].shape[at + 1 :]]
    for place, size in enumerate(kernel, start=2):
        ctx.labels.pin(ctx.owned(weight, place, Dim(size)), f"it is a kernel dimension of {ctx.where}")
    counted = [*batch, *(places if a["transposed"] else sampled), *(Dim(size) for size in kernel)]
    filters = _filters(ctx, a, channels, outs[0].shape[at], counted)
    ctx.remember(["in_channels"], channels)
    ctx.remember(["out_channels"], filters)
    if a.get("bias") is not None:
        filters = ctx.labels.unite(filters, ctx.owned(a["bias"], 0, filters), f"it meets a fixed bias in {ctx.where}")
    return [[*batch, plain(filters), *sampled]]


def _is_pointwise(a: Arguments, kernel: Sequence[int]) -> bool:
    """Whether a convolution treats every place alone, so that places may come and go."""
    ones, zeros = {*kernel, *a["stride"]} == {1}, not any(a["padding"])
    return ones and zeros and not a["transposed"]


def _filters(ctx: Context, a: Arguments, channels: Dim, out_size: int, counted: Dims) -> Dim:
    """The output channels of a convolution, after its weight has met the input channels."""
    weight, groups, turned = a["weight"], a["groups"], a["transposed"]
    per_in, per_out = channels.size // groups, out_size // groups
    reason = f"it is read by a fixed dimension in {ctx.where}"
    if groups > 1 and per_in == per_out == 1:  # depthwise: the filter goes along with its channel
        along = ctx.labels.unite(ctx.owned(weight, 0, channels), channels, reason)
        ctx.remember(["groups"], along)
        ctx.term(1, [*counted, along])
        return along
    count, inside = (Dim(1), channels) if groups == 1 else ctx.labels.split(plain(channels), [groups, per_in])
    reader = ctx.owned(weight, 0, channels) if turned else ctx.owned(weight, 1, inside)
    ctx.runs_across(ctx.labels.unite(reader, channels if turned else inside, reason))
    ctx.reads(reader)
    filters = ctx.dims(weight)[1 if turned else 0]
    ctx.makes(filters)
    ctx.term(1, [*counted, reader, filters])
    if groups == 1:
        return filters
    ctx.remember(["groups"], count)
    if turned:  # the weight holds the filters of one group
        return ctx.labels.merge([count, plain(filters)])
    out_count, _ = ctx.labels.split(plain(filters), [groups, per_out])
    ctx.labels.unite(count, out_count, f"it counts the groups of a fixed dimension in {ctx.where}")
    return filters
