"""Norms, reductions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from meristem.tracing.labels import Dim, constant
from meristem.tracing.ops.context import Arguments, Context, Dims, axis_at, fixed, plain, tensors_of


def batch_norm(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Each channel is normalised alone; weights and statistics go along with the channels."""
    dims = list(ctx.dims(a["input"]))
    at = min(1, len(dims) - 1)
    for name in ("weight", "bias", "running_mean", "running_var"):
        if a.get(name) is not None:
            mine = ctx.owned(a[name], 0, dims[at])
            dims[at] = plain(ctx.labels.unite(dims[at], mine, f"it is normalised in {ctx.where}"))
    for other in (*dims[:at], *dims[at + 1 :]):
        ctx.runs_across(other)
    ctx.remember(["num_features"], dims[at])
    return [
        dims,
        *([dims[at]] if out.dim() == 1 and len(out) == dims[at].size else fixed(out) for out in outs[1:]),
    ]


def layer_norm(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """The last dimensions are normalised together, across their units."""
    dims = list(ctx.dims(a["input"]))
    shape = a["normalized_shape"]
    for back in range(1, len(shape) + 1):
        ctx.mixes_units(dims[-back])
        for name in ("weight", "bias"):
            if a.get(name) is not None:
                mine = ctx.owned(a[name], len(shape) - back, dims[-back])
                dims[-back] = plain(ctx.labels.unite(dims[-back], mine, f"it is normalised in {ctx.where}"))
        ctx.remember(["normalized_shape"], dims[-back], len(shape) - back)
    return [dims, *(fixed(out) for out in outs[1:])]


def group_norm(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Channels are normalised across the units of each group."""
    dims = list(ctx.dims(a["input"]))
    groups = a["group"]
    for name in ("weight", "bias"):
        if a.get(name) is not None:
            mine = ctx.owned(a[name], 0, dims[1])
            dims[1] = plain(ctx.labels.unite(dims[1], mine, f"it is normalised in {ctx.where}"))
    if 1 < groups < dims[1].size:
        count, inside = ctx.labels.split(plain(dims[1]), [groups, dims[1].size // groups])
    else:
        count, inside = (Dim(1), dims[1]) if groups == 1 else (dims[1], Dim(1))
    ctx.divided(count)
    ctx.mixes_units(inside)
    ctx.remember(["num_groups"], count)
    ctx.remember(["num_channels"], dims[1])
    return [dims, *(fixed(out) for out in outs[1:])]


def weight_norm(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """A weight split into its direction and its size."""
    direction, size = ctx.dims(a["v"]), ctx.dims(a["g"])
    joined = [
        ctx.labels.unite(one, two, f"it is normalised in {ctx.where}") for one, two in zip(direction, size, strict=True)
    ]
    return [[plain(dim) for dim in joined], *(fixed(out) for out in outs[1:])]


def softmax(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """A softmax across the units of one dimension."""
    dims = ctx.dims(a["self"])
    ctx.mixes_units(dims[axis_at(a["dim"], len(dims))])
    return [dims]


def reduction(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Sums, means, maxima, norms: the reduced dimensions go, or stay with size one."""
    dims = ctx.dims(a["self"])
    chosen = a.get("dim")
    every = range(len(dims)) if chosen is None or chosen == [] else ([chosen] if isinstance(chosen, int) else chosen)
    reduced = {axis_at(dim, len(dims)) for dim in every}
    for at in reduced:
        ctx.mixes_units(dims[at])
    kept = [constant(1) if at in reduced else dim for at, dim in enumerate(dims)]
    result = kept if a.get("keepdim") else [dim for at, dim in enumerate(dims) if at not in reduced]
    return [result if len(result) == out.dim() else fixed(out) for out in outs]


def extreme(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """A reduction that chooses one element: its second result, if it has one, says where it was."""
    if len(outs) > 1:
        dims = ctx.dims(a["self"])
        ctx.positions(outs[1], [dims[axis_at(a["dim"], len(dims))]] if dims else [])
    return reduction(ctx, a, outs)


def position_of_extreme(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Where the largest element is, or the smallest: among all elements if no dimension is given."""
    dims, chosen = ctx.dims(a["self"]), a.get("dim")
    ctx.positions(outs[0], dims if chosen is None else dims[axis_at(chosen, len(dims)) :][:1])
    return reduction(ctx, a, outs)


def spatial(ctx: Context, a: Arguments, outs: Sequence[Tensor]) -> list[Dims]:
    """Pooling, padding by reflection, interpolation: the leading dimensions pass, the sampled ones are fixed."""
    dims = list(ctx.dims(tensors_of(a)[0]))
    kept = min(2, len(dims) - 1)
    if len(dims) >= 2 and len(dims) - _spatial_rank(a) in (1, 2):
        kept = len(dims) - _spatial_rank(a)
    for dim in dims[kept:]:
        ctx.runs_across(dim)
        ctx.labels.pin(dim, f"it is a spatial dimension of {ctx.where}")
    return [[*dims[:kept], *(Dim(size) for size in out.shape[kept:])] for out in outs]


def _spatial_rank(a: Arguments) -> int:
    """How many spatial dimensions an operation's own sizes speak of."""
    for name, per_dim in (("kernel_size", 1), ("output_size", 1), ("padding", 2)):
        if isinstance(a.get(name), (list, tuple)) and a[name]:
            return len(a[name]) // per_dim
    return 0
