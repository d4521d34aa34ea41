"""Tensors of constants that share memory: what is written into one of them is in all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from meristem.tracing.labels import Dim, Labels
from meristem.tracing.ops.context import Dims


class SharedMemory:
    """Finds tensors of constants by their memory. Of others nothing need be found: labels tell what meets there."""

    def __init__(self) -> None:
        self._by_storage: dict[int, list[Tensor]] = {}

    @property
    def is_used(self) -> bool:
        """Whether any tensor is kept in mind."""
        return bool(self._by_storage)

    def add(self, tensor: Tensor, dims: Sequence[Dim]) -> None:
        """Keep a tensor in mind, if anything in it is constant."""
        for dim in dims:
            if dim.constant and dim.size > 1:
                self._by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
                return

    def others(self, tensor: Tensor) -> Iterator[Tensor]:
        """The other tensors of constants in the same memory."""
        for other in list(self._by_storage.get(tensor.untyped_storage()._cdata, ())):
            if other is not tensor:
                yield other


def after_write(other: Tensor, dims: Dims, written: Tensor, values: Dims, labels: Labels, where: str) -> Dims:
    """The dimensions of a tensor after ``values`` were written into ``written``, which shares its memory.

    Along a dimension that both tensors have, it is as constant as what was written. Along any other that was constant
    the written positions differ from the rest; units that lie there cannot be found again.
    """
    if written.numel() == other.numel() and all(dim.constant for dim in values):
        return dims
    common = [_counterpart(other, at, written) for at in range(other.dim())]
    if any(at is None and dim.constant and dim.size > 1 for dim, at in zip(dims, common, strict=True)):
        for rest in set(range(written.dim())) - set(common):
            labels.pin(values[rest], f"it is written into a part of a tensor in {where}")
    result: Dims = []
    for dim, at in zip(dims, common, strict=True):
        if at is not None:
            dim = labels.unite(dim, values[at], f"it is written over a fixed dimension in {where}")
        elif dim.constant and dim.size > 1:
            dim = Dim(dim.size)
        result.append(replace(dim, origin=None))
    return result


def _counterpart(tensor: Tensor, at: int, other: Tensor) -> int | None:
    """The dimension of ``other`` that goes through memory as dimension ``at`` of ``tensor`` does."""
    if tensor.shape[at] == 1:
        return None
    steps: Sequence[tuple[int, int]] = list(zip(other.shape, other.stride(), strict=True))
    step = (tensor.shape[at], tensor.stride(at))
    return steps.index(step) if step in steps else None
