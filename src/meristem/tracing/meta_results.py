"""The results of operations on the meta device, mostly without torch, and never twice for the same.

Torch works out most shapes in Python. That takes many times what the operation itself would take on a CPU, and at the
first time it imports torch's compiler. Here an operation that goes element by element needs its operands' shapes alone,
``ops/shapes.py`` knows some of the others, and what torch was asked for is remembered. All runs of one trace share it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from meristem.tracing.operation import Signature, is_pointwise, without_underscore
from meristem.tracing.ops.elementwise import pointwise
from meristem.tracing.ops.op import Op
from meristem.tracing.ops.shapes import broadcast_row_major, like

_PLAIN = (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]


class MetaResults:
    """What operations return, by what is known of their arguments."""

    def __init__(self) -> None:
        self._layouts: dict[Hashable, list[Layout] | Layout] = {}
        self._dtypes: dict[Hashable, torch.dtype | None] = {}

    def of(
        self,
        func: Callable[..., Any],
        called: Signature,
        op: Op,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        arguments: Mapping[str, Any],
    ) -> Any:
        """What ``func(*args, **kwargs)`` returns; ``op`` is its entry in the table."""
        outs = op.shape(arguments) if op.shape is not None else None
        if outs is None and (op.rule is pointwise or is_pointwise(func, without_underscore(called.name))):
            if called.in_place:
                outs = self._in_place(called, args, kwargs)
            else:
                outs = self._pointwise(func, called, args, kwargs)
        if outs is not None:
            return outs
        return self._remembered(func, args, kwargs) if called.returns_new else func(*args, **kwargs)

    # --- element by element ---

    def _pointwise(
        self, func: Callable[..., Any], called: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Tensor | None:
        values = [*args, *kwargs.values()]
        tensors = [value for value in values if isinstance(value, Tensor)]
        if not called.returns_new or not tensors or "memory_format" in called.names:
            return None
        first = tensors[0]
        alike = all(each.shape == first.shape and each.stride() == first.stride() for each in tensors[1:])
        shape = None if alike else broadcast_row_major(tensors)
        if shape is None and not alike:
            return None
        dtype = self._dtype(func, values, args, kwargs)
        if dtype is None:
            return None
        if shape is not None:
            return torch.empty(shape, dtype=dtype, device="meta")
        result = like(first, dtype)
        return result if result.stride() == first.stride() else None  # not if it has gaps or overlaps

    def _dtype(
        self, func: Callable[..., Any], values: list[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> torch.dtype | None:
        """The type of the result, from the operation on single numbers."""
        kinds = [(value.dtype, not value.dim()) if isinstance(value, Tensor) else type(value) for value in values]
        key = (func, *kinds, *kwargs)
        if key not in self._dtypes:
            try:
                result = func(*map(_single, args), **{name: _single(value) for name, value in kwargs.items()})
            except Exception:  # whatever it is, torch will say it about the real arguments
                result = None
            self._dtypes[key] = result.dtype if isinstance(result, Tensor) else None
        return self._dtypes[key]

    @staticmethod
    def _in_place(called: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
        """The first argument itself, if all others fit it as they are."""
        first: Tensor = args[0]
        counts = first.dtype is torch.int64 and called.name in ("add_", "sub_", "mul_")
        if not (first.is_floating_point() or counts) or not _without_overlap(first):
            return None
        for value in (*args[1:], *kwargs.values()):
            if isinstance(value, Tensor):
                if value.shape != first.shape or value.dtype != first.dtype or value.stride() != first.stride():
                    return None
            elif type(value) not in ((int,) if counts else (int, float, bool, str, type(None))):
                return None
        return first

    # --- all others ---

    def _remembered(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        key = _key((func, *args, *kwargs.items()))
        if key is None:
            return func(*args, **kwargs)
        known = self._layouts.get(key)
        if known is None:
            outs = func(*args, **kwargs)
            if isinstance(outs, Tensor):
                self._layouts[key] = _layout(outs)
            elif type(outs) is tuple and all(type(out) is Tensor for out in outs):
                self._layouts[key] = [_layout(out) for out in outs]
            return outs
        return _made(known) if isinstance(known, tuple) else tuple(map(_made, known))


def _key(value: Any) -> Hashable | None:
    """All that the shape of a result may depend on, or None for what is not known to be all."""
    if isinstance(value, Tensor):
        return (*_layout(value), value.is_conj()) if value.is_meta and value.layout is torch.strided else None
    if isinstance(value, (tuple, list)):
        keys = tuple(map(_key, value))
        return None if None in keys else keys
    return (type(value), value) if isinstance(value, _PLAIN) or callable(value) else None


def _layout(tensor: Tensor) -> Layout:
    return tensor.shape, tensor.stride(), tensor.dtype


def _made(layout: Layout) -> Tensor:
    shape, stride, dtype = layout
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def _single(value: Any) -> Any:
    """A tensor of one number in place of a tensor."""
    return torch.ones([1] * min(value.dim(), 1), dtype=value.dtype) if isinstance(value, Tensor) else value


def _without_overlap(tensor: Tensor) -> bool:
    return all(stride or size == 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
