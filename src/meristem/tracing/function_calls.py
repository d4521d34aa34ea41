"""The functions of torch that the model's own code calls, and what its slices leave out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from meristem.tracing.operation import flat, makes_numbers, without_underscore
from meristem.tracing.slices import leaves_out

_MAKES_A_TENSOR = frozenset((torch.tensor, torch.as_tensor, torch.Tensor.new_tensor))
_INDEXES = frozenset((torch.Tensor.__getitem__, torch.Tensor.__setitem__))


class FunctionCalls(TorchFunctionMode):
    """Tells ``called`` of every function that makes new numbers, ``literal`` of the numbers that tensors are made of.

    On the meta device nothing is left of these. ``sliced`` is told of a tensor that is sliced, and whether each slice
    leaves out a part of its dimension. ``inside`` says whether a function is running: an operation outside of any comes
    from code that is not Python.
    """

    def __init__(
        self,
        literal: Callable[[tuple[Any, ...]], None],
        called: Callable[[str, Mapping[str, Any]], None],
        sliced: Callable[[Tensor, tuple[bool, ...]], None],
    ) -> None:
        super().__init__()
        self.inside = False
        self._literal, self._called, self._sliced = literal, called, sliced

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MAKES_A_TENSOR:
            numbers = tuple(value for value in flat([*args, kwargs.get("data")]) if isinstance(value, (int, float)))
            if numbers:
                self._literal(numbers)
        elif func in _INDEXES:
            found = leaves_out(args[0], args[1])
            if found:
                self._sliced(args[0], found)
        self.inside = True
        try:
            result = func(*args, **kwargs)
        finally:
            self.inside = False
        name = getattr(func, "__name__", "")
        if makes_numbers(name) and (name == "__setitem__" or _has_tensor(result)):
            self._called(without_underscore(name), {"args": args, **kwargs})
        return result


def _has_tensor(result: Any) -> bool:
    return isinstance(result, Tensor) or (
        isinstance(result, (tuple, list)) and any(isinstance(value, Tensor) for value in flat(result))
    )
