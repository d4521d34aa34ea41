"""Elements read and written by position: look-ups, index_add, scatter and their kin.

The dimension in which positions are counted is pinned. The others pass, as long as the positions are the same for all
units there: an index of its own for each channel tells channels apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from meristem.tracing.labels import Dim, constant
from meristem.tracing.ops.context import Arguments, Context, Dims, axis_at, fixed, plain


def embedding(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Rows of a table looked up by number, one by one or summed in bags."""
    table = ctx.dims(a["weight"])
    ctx.runs_across(table[0])
    ctx.labels.pin(table[0], f"it is looked up by number in {ctx.where}")
    ctx.makes(table[1])
    places = ctx.dims(a["indices"])
    if len(places) != outs[0].dim() - 1 or "offsets" in a:  # bags
        places = fixed(outs[0])[:-1]
    return [[*map(plain, places), plain(table[1])], *(fixed(out) for out in outs[1:])]


def index(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Elements looked up by tensors of positions, or chosen by masks."""
    before, found, after = _places(ctx, ctx.dims(a["self"]), a["indices"], len(outs[0].shape))
    shape = outs[0].shape[len(before) :]
    return [[*before, *(Dim(n) if dim is None else dim for dim, n in zip(found, shape, strict=False)), *after]]


def index_put(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Values written where tensors of positions, or masks, say."""
    into, values = ctx.dims(a["self"]), ctx.dims(a["values"])
    used = _used(into, a["indices"])
    before, found, after = _places(ctx, into, a["indices"], None)
    written: list[Dim | None] = [*before, *found, *after]
    if len(values) > len(written):
        raise ValueError("values have more dimensions than the places they are written to")
    for back in range(1, len(values) + 1):
        place = written[-back]
        if place is None:
            ctx.labels.pin(values[-back], f"it is looked up by position in {ctx.where}")
        else:
            written[-back] = ctx.labels.unite(place, values[-back], f"it meets a fixed dimension in {ctx.where}")
    rest = iter([*written[: len(before)], *written[len(before) + len(found) :]])
    result = [_told_apart(dim) if at in used else next(rest) for at, dim in enumerate(into)]
    return [[plain(dim) for dim in result if dim is not None]]


def _used(dims: Dims, indices: Sequence[Tensor | None]) -> set[int]:
    """The dimensions that positions or masks are counted along."""
    used, at = set(), 0
    for positions in indices:
        span = positions.dim() if positions is not None and _is_mask(positions) else 1
        used |= set(range(at, at + span)) if positions is not None else set()
        at += span
    return {at for at in used if at < len(dims)}


def _is_mask(positions: Tensor) -> bool:
    return str(positions.dtype) in ("torch.bool", "torch.uint8")


def _places(
    ctx: Context, dims: Dims, indices: Sequence[Tensor | None], rank: int | None
) -> tuple[Dims, list[Dim | None], Dims]:
    """The dimensions of what tensors of positions point at: those before, those found (None: by a mask), those after.

    ``rank`` is the number of dimensions of the result, where it is known.
    """
    used = _used(dims, indices)
    for at in used:
        ctx.runs_across(dims[at])
        ctx.labels.pin(dims[at], f"it is looked up by position in {ctx.where}")
    found: list[Dim | None] = []
    for positions in indices:
        if positions is not None:
            _broadcast(ctx, found, positions)
    order = sorted(used)
    together = all(positions is not None for positions in indices[_first(indices) : _last(indices) + 1])
    first = order[0] if together and order else 0
    rest = [(at, dim) for at, dim in enumerate(dims) if at not in used]
    if rank is not None and rank != len(rest) + len(found):
        raise ValueError("a look-up that gives another number of dimensions")
    return [dim for at, dim in rest if at < first], found, [dim for at, dim in rest if at >= first]


def _first(indices: Sequence[Tensor | None]) -> int:
    return next((at for at, positions in enumerate(indices) if positions is not None), 0)


def _last(indices: Sequence[Tensor | None]) -> int:
    return max((at for at, positions in enumerate(indices) if positions is not None), default=-1)


def _broadcast(ctx: Context, found: list[Dim | None], positions: Tensor) -> None:
    """Let the dimensions of one tensor of positions meet those of the others, aligned at the last."""
    dims: list[Dim | None] = [*ctx.dims(positions)]
    if _is_mask(positions):
        for dim in ctx.dims(positions):
            ctx.labels.pin(dim, f"it chooses positions in {ctx.where}")
        dims = [None]
    found[:0] = [constant(1)] * (len(dims) - len(found))
    for back in range(1, len(dims) + 1):
        one, two = found[-back], dims[-back]
        if one is None or two is None:
            found[-back] = None
        else:
            found[-back] = plain(ctx.labels.unite(one, two, f"it meets a fixed dimension in {ctx.where}"))


def _told_apart(dim: Dim) -> Dim:
    """A dimension that is pinned, and no longer constant: its positions were written one by one."""
    return plain(dim) if dim.labelled else Dim(dim.size)


def gather(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Elements looked up by position along one dimension, elsewhere for each place of the index."""
    dims, places = ctx.dims(a["self"]), ctx.dims(a["index" if "index" in a else "indices"])
    at = axis_at(a["dim"], len(dims))
    ctx.runs_across(dims[at])
    ctx.labels.pin(dims[at], f"it is looked up by position in {ctx.where}")
    met = _met(ctx, dims, places, at)
    return [[places[at] if other == at else dim for other, dim in enumerate(met)]]


def _met(ctx: Context, dims: Dims, places: Dims, at: int) -> Dims:
    """What is left of ``dims``, but for ``at``, where there are ``places``; the first of those there are."""
    met = []
    for other, (dim, place) in enumerate(zip(dims, places, strict=True)):
        if other == at or dim.size == place.size:
            reason = f"it meets a fixed dimension in {ctx.where}"
            met.append(dim if other == at else plain(ctx.labels.unite(dim, place, reason)))
        else:
            ctx.labels.pin(dim, f"it is looked up by position in {ctx.where}")
            ctx.labels.pin(place, f"it is looked up by position in {ctx.where}")
            met.append(Dim(place.size))
    return met


def scatter(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Elements written by position along one dimension: scatter, scatter_add, scatter_reduce."""
    into, places = ctx.dims(a["self"]), ctx.dims(a["index"])
    at = axis_at(a["dim"], len(into))
    ctx.runs_across(into[at])
    parts = [places, ctx.dims(a["src"])] if isinstance(a.get("src"), Tensor) else [places]
    result = list(into)
    for part in parts:
        for other, dim in enumerate(part):
            if other == at or dim.size != result[other].size:
                for one in (result[other], dim):
                    ctx.labels.pin(one, f"it is written by position in {ctx.where}")
                result[other] = _told_apart(result[other])
            else:
                reason = f"it meets a fixed dimension in {ctx.where}"
                result[other] = plain(ctx.labels.unite(result[other], dim, reason))
    return [result]


def slices_written(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Slices written by position along one dimension: index_add, index_copy, index_reduce, index_fill."""
    into = ctx.dims(a["self"])
    at = axis_at(a["dim"], len(into))
    ctx.runs_across(into[at])
    source = ctx.dims(a["source"]) if isinstance(a.get("source"), Tensor) else []
    result = list(into)
    for other, dim in enumerate(source if len(source) == len(into) else []):
        if other != at:
            reason = f"it meets a fixed dimension in {ctx.where}"
            result[other] = plain(ctx.labels.unite(into[other], dim, reason))
    for dim in [into[at], *ctx.dims(a["index"]), *(source if len(source) != len(into) else [source[at]])]:
        ctx.labels.pin(dim, f"it is written by position in {ctx.where}")
    result[at] = _told_apart(into[at])
    return [result]


def masked_scatter(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """What a mask chooses is replaced by the elements of a source, in order.

    Last dimensions in which the mask is constant are replaced as a whole, so that there source and target meet.
    """
    into, mask, source = (ctx.dims(a[name]) for name in ("self", "mask", "source"))
    result, whole = list(into), True
    for back in range(1, len(into) + 1):
        of_mask = mask[-back] if back <= len(mask) else constant(1)
        of_source = source[-back] if back <= len(source) else Dim(1)
        repeats = of_mask.constant or (back <= len(mask) and of_mask.size == 1)
        whole = whole and repeats and not of_mask.labelled and into[-back].size == of_source.size
        if whole:
            reason = f"it meets a fixed dimension in {ctx.where}"
            result[-back] = plain(ctx.labels.unite(into[-back], of_source, reason))
            continue
        for dim in (into[-back], of_mask, of_source):
            ctx.labels.pin(dim, f"it is written by position in {ctx.where}")
        result[-back] = _told_apart(into[-back])
    for dim in source[: max(0, len(source) - len(into))]:
        ctx.labels.pin(dim, f"it is written by position in {ctx.where}")
    return [result]


def positions_found(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """The positions of what is not zero."""
    for dim in ctx.dims(a["self"]):
        ctx.runs_across(dim)
        ctx.labels.pin(dim, f"positions along it are found in {ctx.where}")
    return [fixed(out) for out in outs]


def segments(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Runs of positions along one dimension, each reduced to one."""
    dims = ctx.dims(a["data"])
    at = axis_at(a.get("axis", 0), len(dims))
    for dim in dims[: at + 1]:
        ctx.runs_across(dim)
        ctx.labels.pin(dim, f"the order of its positions matters in {ctx.where}")
    return [[*(Dim(size) for size in outs[0].shape[: at + 1]), *dims[at + 1 :]]]


def packed(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Sequences of several lengths, step after step in one dimension."""
    batch, time, *features = ctx.dims(a["input"])
    for dim in (batch, time):
        ctx.labels.pin(dim, f"it is packed in {ctx.where}")
    return [[Dim(len(outs[0])), *features], *(fixed(out) for out in outs[1:])]


def unpacked(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Packed sequences, padded to one length."""
    steps, *features = ctx.dims(a["data"])
    ctx.labels.pin(steps, f"it is unpacked in {ctx.where}")
    return [[*(Dim(size) for size in outs[0].shape[:2]), *features], *(fixed(out) for out in outs[1:])]
