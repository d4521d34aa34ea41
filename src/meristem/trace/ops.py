"""How operations treat labels. One function per family; a table from operation names to families.

A rule gets the context, the operation's arguments by name, and its real outputs; it returns the dimensions of every
output. Operations that torch tags as pointwise need no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from meristem.trace.labels import ANY, Dim, Labels, constant, dim_of

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
    def across(self, dim: Dim) -> None: ...
    def heads(self, dim: Dim) -> None: ...
    def term(self, factor: int, dims: Sequence[Dim]) -> None: ...
    def remember(self, names: Sequence[str], dim: Dim, index: int | None = None) -> None: ...
    def viewed(self, dims: Sequence[Dim]) -> None: ...


def fixed(tensor: Tensor) -> Dims:
    return [Dim(size) for size in tensor.shape]


def _tensors(arguments: Arguments) -> list[Tensor]:
    found: list[Tensor] = []
    for value in arguments.values():
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if isinstance(item, Tensor))
    return found


def _axis(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


def _plain(dim: Dim) -> Dim:
    return Dim(dim.size, dim.ids, dim.constant)


# --- element by element -----------------------------------------------------------------------------------------


def pointwise(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Operands meet position by position, aligned at the last dimension."""
    operands = [ctx.dims(tensor) for tensor in _tensors(a)]
    shape = outs[0].shape
    result: Dims = []
    for back in range(len(shape), 0, -1):
        meeting = [dims[-back] for dims in operands if len(dims) >= back]
        joined = meeting[0] if meeting else constant(shape[-back])
        for other in meeting[1:]:
            joined = ctx.labels.unite(joined, other, f"it meets a fixed dimension in {ctx.where}")
        result.append(_plain(joined) if len(operands) > 1 else joined)
    return [result for _ in outs]


def same(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """The first tensor's dimensions, for every output of its shape."""
    dims = ctx.dims(_tensors(a)[0])
    return [dims if len(dims) == out.dim() else fixed(out) for out in outs]


def made_of_constants(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    return [[constant(size) for size in out.shape] for out in outs]


def copied_into(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """``x.copy_(y)``: what is written into a tensor of constants loses its trace there, so it is pinned."""
    into, source = ctx.dims(a["self"]), ctx.dims(a["src"])
    for back in range(1, len(source) + 1):
        if into[-back].constant and not into[-back].labelled and source[-back].labelled:
            ctx.labels.pin(source[-back], f"it is written into a constant tensor in {ctx.where}")
        else:
            ctx.labels.unite(into[-back], source[-back], f"it is written into a fixed dimension in {ctx.where}")
    return [into]


# --- moving elements --------------------------------------------------------------------------------------------


def view(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, shape = ctx.dims(_tensors(a)[0]), list(outs[0].shape)
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
    if [dim.size for dim in dims] == sizes:
        return dims
    if not any(dim.labelled for dim in dims):
        return [Dim(size, constant=bool(dims) and all(dim.constant for dim in dims)) for size in sizes]
    out = ctx.labels.split(_plain(ctx.labels.merge(dims)), sizes) if sizes else []
    ctx.viewed(out)
    return out


def permute(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = ctx.dims(a["self"])
    return [[dims[_axis(dim, len(dims))] for dim in a["dims"]]]


def transpose(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = list(ctx.dims(a["self"]))
    if len(dims) > 1:
        one, two = _axis(a.get("dim0", 0), len(dims)), _axis(a.get("dim1", 1), len(dims))
        dims[one], dims[two] = dims[two], dims[one]
    return [dims]


def expand(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, shape = ctx.dims(a["self"]), outs[0].shape
    result = [constant(size) for size in shape]
    for back in range(1, len(dims) + 1):
        if dims[-back].size == shape[-back]:
            result[-back] = dims[-back]
        else:
            ctx.labels.pin(dims[-back], f"it is expanded in {ctx.where}")
    return [result]


def unsqueeze(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = list(ctx.dims(a["self"]))
    dims.insert(_axis(a["dim"], len(dims) + 1), constant(1))
    return [dims]


def squeeze(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = ctx.dims(a["self"])
    chosen = a.get("dim")
    where = range(len(dims)) if chosen is None else ([chosen] if isinstance(chosen, int) else chosen)
    gone = {_axis(dim, len(dims)) for dim in where if dims and dims[_axis(dim, len(dims))].size == 1}
    for index in gone:
        ctx.labels.pin(dims[index], f"it is squeezed away in {ctx.where}")
    return [[dim for index, dim in enumerate(dims) if index not in gone]]


def repeat(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, times = ctx.dims(a["self"]), a["repeats"]
    dims = [constant(1)] * (len(times) - len(dims)) + dims
    return [[dim if n == 1 else _tile(dim, n) for dim, n in zip(dims, times, strict=True)]]


def _tile(dim: Dim, times: int) -> Dim:
    if dim.ids is None:
        return Dim(dim.size * times, constant=dim.constant)
    return dim_of(np.tile(dim.ids, times))


def concatenate(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    parts = [ctx.dims(tensor) for tensor in a["tensors"] if tensor.numel() or tensor.dim() > 1]
    at = _axis(a.get("dim", 0), outs[0].dim())
    result = list(parts[0])
    for other in parts[1:]:
        for index, dim in enumerate(other):
            if index != at:
                result[index] = ctx.labels.unite(result[index], dim, f"it is joined to a fixed dimension in {ctx.where}")
    if any(part[at].labelled for part in parts):
        result[at] = dim_of(np.concatenate([part[at].vector() for part in parts]))
    else:
        result[at] = Dim(outs[0].shape[at], constant=all(part[at].constant for part in parts))
    return [[_plain(dim) for dim in result]]


def stack(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    parts = [ctx.dims(tensor) for tensor in a["tensors"]]
    result = list(parts[0])
    for other in parts[1:]:
        result = [
            ctx.labels.unite(dim, more, f"it is stacked on a fixed dimension in {ctx.where}")
            for dim, more in zip(result, other, strict=True)
        ]
    at = _axis(a.get("dim", 0), outs[0].dim())
    return [[*result[:at], Dim(len(parts)), *result[at:]]]


def split(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Equal parts of a dimension stay equal: a unit is the same index in every part."""
    dims = ctx.dims(a["self"])
    at = _axis(a.get("dim", 0), len(dims))
    whole = dims[at]
    sizes = [out.shape[at] for out in outs]
    parts: Dims
    if whole.ids is None:
        parts = [Dim(size, constant=whole.constant) for size in sizes]
    elif len(set(sizes)) == 1 and len(sizes) > 1:
        count, part = ctx.labels.split(_plain(whole), [len(sizes), sizes[0]])
        ctx.labels.pin(count, f"it counts the parts of a split in {ctx.where}")
        parts = [part] * len(sizes)
    else:
        cuts = np.cumsum(sizes)[:-1]
        parts = [dim_of(ids) for ids in np.split(whole.ids, cuts)]
    ctx.viewed(parts[:1] if len(set(sizes)) == 1 else parts)
    return [[*dims[:at], part, *dims[at + 1 :]] for part in parts]


def gated_halves(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = ctx.dims(a["self"])
    at = _axis(a.get("dim", -1), len(dims))
    halves, part = ctx.labels.split(_plain(dims[at]), [2, dims[at].size // 2])
    ctx.labels.pin(halves, f"it counts the halves in {ctx.where}")
    return [[*dims[:at], part, *dims[at + 1 :]]]


def unbind(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = ctx.dims(a["self"])
    at = _axis(a.get("dim", 0), len(dims))
    ctx.labels.pin(dims[at], f"its positions are taken apart in {ctx.where}")
    return [[*dims[:at], *dims[at + 1 :]] for _ in outs]


def select(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = ctx.dims(a["self"])
    at = _axis(a["dim"], len(dims))
    ctx.labels.pin(dims[at], f"one position is selected in {ctx.where}")
    return [[*dims[:at], *dims[at + 1 :]]]


def slice_(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = list(ctx.dims(a["self"]))
    at = _axis(a.get("dim", 0), len(dims))
    size = outs[0].shape[at]
    ids = dims[at].ids
    if size == dims[at].size:
        return [dims]
    if ids is None:
        dims[at] = Dim(size, constant=dims[at].constant)
    else:
        begin, end, step = slice(a.get("start"), a.get("end"), a.get("step", 1)).indices(len(ids))
        dims[at] = dim_of(ids[begin:end:step])
        ctx.viewed([dims[at]])
    return [dims]


def pad(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, amounts = list(ctx.dims(a["self"])), a["pad"]
    for back in range(1, len(amounts) // 2 + 1):
        before, after = amounts[2 * back - 2], amounts[2 * back - 1]
        if not before and not after:
            continue
        ids = dims[-back].ids
        if ids is None:
            dims[-back] = Dim(outs[0].shape[-back], constant=dims[-back].constant)
        elif before < 0 or after < 0:
            dims[-back] = dim_of(ids[max(0, -before) : len(ids) - max(0, -after)])
        else:
            dims[-back] = dim_of(np.pad(ids, (before, after), constant_values=ANY))
    return [dims]


def pixel_shuffle(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, r = ctx.dims(a["self"]), a["upscale_factor"]
    *lead, channels, height, width = dims
    out, rows, columns = ctx.labels.split(_plain(channels), [channels.size // (r * r), r, r])
    tall, wide = ctx.labels.merge([height, rows]), ctx.labels.merge([width, columns])
    return [[*lead, out, tall, wide]]


def pixel_unshuffle(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, r = ctx.dims(a["self"]), a["downscale_factor"]
    *lead, channels, height, width = dims
    return [[*lead, ctx.labels.merge([channels, Dim(r), Dim(r)]), Dim(height.size // r), Dim(width.size // r)]]


def channel_shuffle(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = ctx.dims(a["self"])
    groups, inside = ctx.labels.split(_plain(dims[1]), [a["groups"], dims[1].size // a["groups"]])
    ctx.remember(["groups"], groups)
    return [[dims[0], ctx.labels.merge([inside, groups]), *dims[2:]]]


def unfold_windows(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = list(ctx.dims(a["self"]))
    at = _axis(a["dimension"], len(dims))
    ctx.labels.pin(dims[at], f"windows are cut from it in {ctx.where}")
    dims[at] = Dim(outs[0].shape[at])
    return [[*dims, Dim(a["size"])]]


def image_to_columns(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, kernel = ctx.dims(a["self"]), a["kernel_size"]
    *lead, channels, height, width = dims
    for spatial in (height, width):
        ctx.labels.pin(spatial, f"windows are cut from it in {ctx.where}")
    return [[*lead, ctx.labels.merge([channels, *(Dim(size) for size in kernel)]), Dim(outs[0].shape[-1])]]


def columns_to_image(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, window = ctx.dims(a["self"]), int(np.prod(a["kernel_size"]))
    *lead, columns, _ = dims
    channels, inside = ctx.labels.split(_plain(columns), [columns.size // window, window])
    ctx.labels.pin(inside, f"it counts the positions of a window in {ctx.where}")
    return [[*lead, channels, *(Dim(size) for size in outs[0].shape[-2:])]]


# --- looking up by position -------------------------------------------------------------------------------------


def embedding(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    table = ctx.dims(a["weight"])
    ctx.labels.pin(table[0], f"it is looked up by number in {ctx.where}")
    ctx.makes(table[1])
    return [[*(_plain(dim) for dim in ctx.dims(a["indices"])), _plain(table[1])]]


def index(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims, chosen = ctx.dims(a["self"]), list(a["indices"])
    used = [at for at, index in enumerate(chosen) if index is not None]
    spans = {at: chosen[at].dim() if str(chosen[at].dtype) in ("torch.bool", "torch.uint8") else 1 for at in used}
    for at in used:
        for deeper in range(at, min(at + spans[at], len(dims))):
            ctx.labels.pin(dims[deeper], f"it is looked up by position in {ctx.where}")
    if any(span != 1 for span in spans.values()):
        return [unknown_dims(ctx, a, outs[0])]
    rest = [(at, dim) for at, dim in enumerate(dims) if at not in used]
    new = [Dim(size) for size in outs[0].shape[: outs[0].dim() - len(rest)]] if rest else fixed(outs[0])
    together = used == list(range(used[0], used[-1] + 1))
    first = used[0] if together else 0
    shape = outs[0].shape
    new = [Dim(shape[first + offset]) for offset in range(len(new))]
    before = [dim for at, dim in rest if at < first]
    return [[*before, *new, *(dim for at, dim in rest if at >= first)]]


def along_a_dimension(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """What depends on the order of positions along ``dim`` pins it; the other dimensions pass through."""
    dims = list(ctx.dims(a["self"]))
    chosen = a.get("dim", a.get("dims"))
    every = range(len(dims)) if chosen is None or chosen == [] else ([chosen] if isinstance(chosen, int) else chosen)
    for dim in every:
        at = _axis(dim, len(dims))
        ctx.labels.pin(dims[at], f"the order of its positions matters in {ctx.where}")
        dims[at] = Dim(dims[at].size)
    results = []
    for out in outs:
        if out.dim() == len(dims):
            kept = zip(dims, out.shape, strict=True)
            results.append([dim if dim.size == size else Dim(size) for dim, size in kept])
        else:
            results.append(unknown_dims(ctx, a, out))
    return results


def triangle(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = ctx.dims(a["self"])
    for dim in dims[-2:]:
        ctx.labels.pin(dim, f"the order of its positions matters in {ctx.where}")
    return [dims]


def gather(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = list(ctx.dims(a["self"]))
    at = _axis(a["dim"], len(dims))
    ctx.labels.pin(dims[at], f"it is looked up by position in {ctx.where}")
    dims[at] = Dim(outs[0].shape[at])
    for other, size in enumerate(outs[0].shape):
        if dims[other].size != size:
            ctx.labels.pin(dims[other], f"it is looked up by position in {ctx.where}")
            dims[other] = Dim(size)
    return [dims]


def real_pairs(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    return [[*ctx.dims(a["self"]), Dim(2)]]


def complex_pairs(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    *dims, last = ctx.dims(a["self"])
    ctx.labels.pin(last, f"it holds real and imaginary parts in {ctx.where}")
    return [dims]


# --- contractions -----------------------------------------------------------------------------------------------


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
    for dim in (inner, summed):
        ctx.reads(dim)
    for dim in (*rows, *columns):
        ctx.makes(dim)
    ctx.term(1, [*batch, *rows, contracted, *columns])
    result = [_plain(dim) for dim in (*batch, *rows, *columns)]
    if a.get("self") is not None and a["self"] is not first:
        added = ctx.dims(a["self"])
        for back in range(1, len(added) + 1):
            reason = f"it meets a fixed dimension in {ctx.where}"
            result[-back] = _plain(ctx.labels.unite(result[-back], added[-back], reason))
    return [result]


def _factors(a: Arguments) -> tuple[Tensor, Tensor]:
    for names in (("mat1", "mat2"), ("batch1", "batch2"), ("mat", "vec"), ("self", "mat2"), ("self", "vec"), ("self", "tensor")):
        if all(isinstance(a.get(name), Tensor) for name in names):
            return a[names[0]], a[names[1]]
    raise KeyError("operands")


def attention(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Fused scaled dot-product attention on (..., heads, length, size)."""
    query, key, value = (ctx.dims(a[name]) for name in ("query", "key", "value"))
    batch = []
    for q, k, v in zip(query[:-2], key[:-2], value[:-2], strict=True):
        reason = f"it is a batch of fixed size in {ctx.where}"
        batch.append(ctx.labels.unite(ctx.labels.unite(q, k, reason), v, reason))
        ctx.heads(batch[-1])
    inner = ctx.labels.unite(query[-1], key[-1], f"it is contracted with a fixed dimension in {ctx.where}")
    if a.get("scale") is None:
        ctx.labels.pin(inner, f"the scale of the softmax depends on it in {ctx.where}")
    length = ctx.labels.unite(key[-2], value[-2], f"it meets a fixed dimension in {ctx.where}")
    ctx.term(1, [*batch, query[-2], inner, length])
    ctx.term(1, [*batch, query[-2], length, value[-1]])
    result = [_plain(dim) for dim in (*batch, query[-2], value[-1])]
    return [result if out.dim() == len(result) else fixed(out) for out in outs]


def convolution(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Plain, grouped, depthwise and transposed convolutions of any number of spatial dimensions."""
    given, weight = ctx.dims(a["input"]), a["weight"]
    kernel = list(weight.shape[2:])
    at = len(given) - len(kernel) - 1
    channels = given[at]
    for dim in given[at + 1 :]:
        ctx.labels.pin(dim, f"it is a spatial dimension of {ctx.where}")
    for dim, size in enumerate(kernel, start=2):
        ctx.labels.pin(ctx.owned(weight, dim, Dim(size)), f"it is a kernel dimension of {ctx.where}")
    sampled = given[at + 1 :] if a["transposed"] else outs[0].shape[at + 1 :]
    places = [given[0].size if at else 1, *(size.size if isinstance(size, Dim) else size for size in sampled), *kernel]
    made = _filters(ctx, a, channels, outs[0].shape[at], int(np.prod(places)))
    ctx.remember(["in_channels"], channels)
    ctx.remember(["out_channels"], made)
    if a.get("bias") is not None:
        made = ctx.labels.unite(made, ctx.owned(a["bias"], 0, made), f"it meets a fixed bias in {ctx.where}")
    return [[*given[:at], _plain(made), *(Dim(size) for size in outs[0].shape[at + 1 :])]]


def _filters(ctx: Context, a: Arguments, channels: Dim, out_size: int, places: int) -> Dim:
    """The output channels of a convolution, after its weight has met the input channels."""
    weight, groups, turned = a["weight"], a["groups"], a["transposed"]
    per_in, per_out = channels.size // groups, out_size // groups
    reason = f"it is read by a fixed dimension in {ctx.where}"
    if groups > 1 and per_in == per_out == 1:  # depthwise: the filter goes along with its channel
        made = ctx.labels.unite(ctx.owned(weight, 0, channels), channels, reason)
        ctx.remember(["groups"], made)
        ctx.term(places, [made])
        return made
    count, inside = (Dim(1), channels) if groups == 1 else ctx.labels.split(_plain(channels), [groups, per_in])
    reader = ctx.owned(weight, 0, channels) if turned else ctx.owned(weight, 1, inside)
    ctx.labels.unite(reader, channels if turned else inside, reason)
    ctx.reads(reader)
    filters = ctx.dims(weight)[1 if turned else 0]
    ctx.makes(filters)
    ctx.term(places, [reader, filters])
    if groups == 1:
        return filters
    ctx.remember(["groups"], count)
    if turned:  # the weight holds the filters of one group
        return ctx.labels.merge([count, _plain(filters)])
    out_count, _ = ctx.labels.split(_plain(filters), [groups, per_out])
    ctx.labels.unite(count, out_count, f"it counts the groups of a fixed dimension in {ctx.where}")
    return filters


# --- norms and reductions ---------------------------------------------------------------------------------------


def batch_norm(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = list(ctx.dims(a["input"]))
    at = min(1, len(dims) - 1)
    for name in ("weight", "bias", "running_mean", "running_var"):
        if a.get(name) is not None:
            mine = ctx.owned(a[name], 0, dims[at])
            dims[at] = _plain(ctx.labels.unite(dims[at], mine, f"it is normalised in {ctx.where}"))
    ctx.remember(["num_features"], dims[at])
    return [dims, *([dims[at]] if out.dim() == 1 and len(out) == dims[at].size else fixed(out) for out in outs[1:])]


def layer_norm(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = list(ctx.dims(a["input"]))
    shape = a["normalized_shape"]
    for back in range(1, len(shape) + 1):
        ctx.across(dims[-back])
        for name in ("weight", "bias"):
            if a.get(name) is not None:
                mine = ctx.owned(a[name], len(shape) - back, dims[-back])
                dims[-back] = _plain(ctx.labels.unite(dims[-back], mine, f"it is normalised in {ctx.where}"))
        ctx.remember(["normalized_shape"], dims[-back], len(shape) - back)
    return [dims, *(fixed(out) for out in outs[1:])]


def group_norm(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = list(ctx.dims(a["input"]))
    groups = a["group"]
    for name in ("weight", "bias"):
        if a.get(name) is not None:
            mine = ctx.owned(a[name], 0, dims[1])
            dims[1] = _plain(ctx.labels.unite(dims[1], mine, f"it is normalised in {ctx.where}"))
    if 1 < groups < dims[1].size:
        count, inside = ctx.labels.split(_plain(dims[1]), [groups, dims[1].size // groups])
    else:
        count, inside = (Dim(1), dims[1]) if groups == 1 else (dims[1], Dim(1))
    ctx.across(inside)
    ctx.remember(["num_groups"], count)
    ctx.remember(["num_channels"], dims[1])
    return [dims, *(fixed(out) for out in outs[1:])]


def weight_norm(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    direction, size = ctx.dims(a["v"]), ctx.dims(a["g"])
    joined = [
        ctx.labels.unite(one, two, f"it is normalised in {ctx.where}") for one, two in zip(direction, size, strict=True)
    ]
    return [[_plain(dim) for dim in joined], *(fixed(out) for out in outs[1:])]


def softmax(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    dims = ctx.dims(a["self"])
    ctx.across(dims[_axis(a["dim"], len(dims))])
    return [dims]


def reduction(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Sums, means, maxima, norms: the reduced dimensions go, or stay with size one."""
    dims = ctx.dims(a["self"])
    chosen = a.get("dim")
    every = range(len(dims)) if chosen is None or chosen == [] else ([chosen] if isinstance(chosen, int) else chosen)
    gone = {_axis(dim, len(dims)) for dim in every}
    for at in gone:
        ctx.across(dims[at])
    kept = [constant(1) if at in gone else dim for at, dim in enumerate(dims)]
    result = kept if a.get("keepdim") else [dim for at, dim in enumerate(dims) if at not in gone]
    return [result if len(result) == out.dim() else fixed(out) for out in outs]


def spatial(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Pooling, padding by reflection, interpolation: the leading dimensions pass, the sampled ones are fixed."""
    dims = list(ctx.dims(_tensors(a)[0]))
    kept = min(2, len(dims) - 1)
    if len(dims) >= 2 and len(dims) - ctx_rank(a) in (1, 2):
        kept = len(dims) - ctx_rank(a)
    for dim in dims[kept:]:
        ctx.labels.pin(dim, f"it is a spatial dimension of {ctx.where}")
    return [[*dims[:kept], *(Dim(size) for size in out.shape[kept:])] for out in outs]


def ctx_rank(a: Arguments) -> int:
    """How many spatial dimensions an operation's own sizes speak of."""
    for name, per_dim in (("kernel_size", 1), ("output_size", 1), ("padding", 2)):
        if isinstance(a.get(name), (list, tuple)) and a[name]:
            return len(a[name]) // per_dim
    return 0


def unknown_dims(ctx: Context, a: Arguments, out: Tensor) -> Dims:
    """What is not understood pins everything it touches."""
    for tensor in _tensors(a):
        for dim in ctx.dims(tensor):
            ctx.labels.pin(dim, f"meristem does not know the operation {ctx.where}")
    return fixed(out)


def unknown(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    return [unknown_dims(ctx, a, out) for out in outs]


def nothing(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    return [fixed(out) for out in outs]


def _table() -> dict[str, OpRuleFunction]:
    families: list[tuple[OpRuleFunction, str]] = [
        (
            same,
            "clone contiguous detach alias lift_fresh _to_copy to native_dropout dropout bernoulli bernoulli_ uniform_ "
            "normal_ zero_ fill_ random_ exponential_ view_as_real_copy _conj _neg_view resolve_conj resolve_neg "
            "alpha_dropout feature_dropout _fake_quantize_learnable_per_tensor_affine fake_quantize_per_tensor_affine",
        ),
        (pointwise, "where masked_fill _prelu_kernel prelu masked_fill_ clamp complex polar lerp addcmul addcdiv"),
        (
            made_of_constants,
            "zeros ones empty full rand randn randint randperm arange linspace eye scalar_tensor zeros_like ones_like "
            "empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full empty_strided "
            "new_empty_strided tril_indices triu_indices logspace hann_window range",
        ),
        (copied_into, "copy_"),
        (view, "view reshape _unsafe_view flatten unflatten _reshape_alias ravel"),
        (permute, "permute"),
        (transpose, "transpose t numpy_T adjoint swapaxes transpose_ t_"),
        (expand, "expand"),
        (unsqueeze, "unsqueeze unsqueeze_"),
        (squeeze, "squeeze squeeze_"),
        (repeat, "repeat"),
        (concatenate, "cat"),
        (stack, "stack"),
        (split, "split unsafe_split split_with_sizes unsafe_split_with_sizes chunk unsafe_chunk tensor_split"),
        (gated_halves, "glu"),
        (unbind, "unbind"),
        (select, "select"),
        (slice_, "slice"),
        (pad, "constant_pad_nd"),
        (pixel_shuffle, "pixel_shuffle"),
        (pixel_unshuffle, "pixel_unshuffle"),
        (channel_shuffle, "channel_shuffle native_channel_shuffle"),
        (unfold_windows, "unfold"),
        (image_to_columns, "im2col"),
        (columns_to_image, "col2im"),
        (embedding, "embedding"),
        (index, "index _unsafe_index"),
        (
            along_a_dimension,
            "cumsum cumprod roll flip sort topk argsort index_select _fft_c2c _fft_r2c _fft_c2r cummax cummin "
            "logcumsumexp diff",
        ),
        (triangle, "tril triu tril_ triu_"),
        (gather, "gather take_along_dim"),
        (real_pairs, "view_as_real"),
        (complex_pairs, "view_as_complex"),
        (contraction, "mm bmm addmm baddbmm mv dot addmv matmul"),
        (
            attention,
            "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
            "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math",
        ),
        (convolution, "convolution _convolution convolution_overrideable"),
        (
            batch_norm,
            "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm batch_norm "
            "_batch_norm_with_update _batch_norm_no_update miopen_batch_norm",
        ),
        (layer_norm, "native_layer_norm layer_norm _fused_rms_norm rms_norm"),
        (group_norm, "native_group_norm"),
        (weight_norm, "_weight_norm_interface"),
        (softmax, "softmax _softmax _log_softmax _safe_softmax log_softmax"),
        (
            reduction,
            "sum mean amax amin max min var std var_mean std_mean linalg_vector_norm norm logsumexp prod any all "
            "nansum median aminmax",
        ),
        (
            spatial,
            "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d avg_pool1d max_pool1d max_pool2d "
            "max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d "
            "_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d "
            "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
            "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
            "upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
            "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
            "replication_pad3d grid_sampler_2d grid_sampler_3d",
        ),
        (nothing, "_assert_async _assert_tensor_metadata sym_size sym_numel _local_scalar_dense item is_nonzero equal"),
    ]
    return {name: rule for rule, names in families for name in names.split()}


TABLE: dict[str, OpRuleFunction] = _table()
