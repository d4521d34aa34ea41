"""Fixed rearrangements of channels and pixels, and what depends on the order of positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from meristem.tracing.labels import Dim
from meristem.tracing.ops.context import Arguments, Context, Dims, axis_at, plain, unknown_dims


def pixel_shuffle(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Channels become pixels."""
    dims, r = ctx.dims(a["self"]), a["upscale_factor"]
    *lead, channels, height, width = dims
    out, rows, columns = ctx.labels.split(plain(channels), [channels.size // (r * r), r, r])
    tall, wide = ctx.labels.merge([height, rows]), ctx.labels.merge([width, columns])
    return [[*lead, out, tall, wide]]


def pixel_unshuffle(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Pixels become channels."""
    dims, r = ctx.dims(a["self"]), a["downscale_factor"]
    *lead, channels, height, width = dims
    return [[*lead, ctx.labels.merge([channels, Dim(r), Dim(r)]), Dim(height.size // r), Dim(width.size // r)]]


def channel_shuffle(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Channels of different groups alternate."""
    dims = ctx.dims(a["self"])
    groups, inside = ctx.labels.split(plain(dims[1]), [a["groups"], dims[1].size // a["groups"]])
    ctx.remember(["groups"], groups)
    return [[dims[0], ctx.labels.merge([inside, groups]), *dims[2:]]]


def unfold_windows(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Windows along one dimension."""
    dims = list(ctx.dims(a["self"]))
    at = axis_at(a["dimension"], len(dims))
    ctx.runs_across(dims[at])
    ctx.labels.pin(dims[at], f"windows are cut from it in {ctx.where}")
    dims[at] = Dim(outs[0].shape[at])
    return [[*dims, Dim(a["size"])]]


def image_to_columns(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Windows of an image as columns: ``nn.Unfold``."""
    dims, kernel = ctx.dims(a["self"]), a["kernel_size"]
    *lead, channels, height, width = dims
    for spatial in (height, width):
        ctx.runs_across(spatial)
        ctx.labels.pin(spatial, f"windows are cut from it in {ctx.where}")
    return [[*lead, ctx.labels.merge([channels, *(Dim(size) for size in kernel)]), Dim(outs[0].shape[-1])]]


def columns_to_image(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """The other way: ``nn.Fold``."""
    dims, window = ctx.dims(a["self"]), int(np.prod(a["kernel_size"]))
    *lead, columns, _ = dims
    channels, inside = ctx.labels.split(plain(columns), [columns.size // window, window])
    ctx.labels.pin(inside, f"it counts the positions of a window in {ctx.where}")
    return [[*lead, channels, *(Dim(size) for size in outs[0].shape[-2:])]]


def along_a_dimension(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """What depends on the order of positions along ``dim`` pins it; the other dimensions pass through."""
    dims = list(ctx.dims(a["self"]))
    chosen = a.get("dim", a.get("dims"))
    every = range(len(dims)) if chosen is None or chosen == [] else ([chosen] if isinstance(chosen, int) else chosen)
    for dim in every:
        at = axis_at(dim, len(dims))
        ctx.runs_across(dims[at])
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
    """One side of the diagonal is set to zero: the order of positions matters."""
    dims = ctx.dims(a["self"])
    for dim in dims[-2:]:
        ctx.labels.pin(dim, f"the order of its positions matters in {ctx.where}")
    return [[*dims[:-2], *(dim if dim.labelled else Dim(dim.size) for dim in dims[-2:])]]


def real_pairs(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Complex numbers as pairs of real ones."""
    return [[*ctx.dims(a["self"]), Dim(2)]]


def complex_pairs(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Pairs of real numbers as complex ones."""
    *dims, last = ctx.dims(a["self"])
    ctx.labels.pin(last, f"it holds real and imaginary parts in {ctx.where}")
    return [dims]
