"""The functions of torch that the model's own code calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from meristem.tracing.operation import flat, without_underscore

# What only moves elements, or makes a tensor of nothing but its size: labels tell all about it.
_MOVES = (
    "__get__ __getitem__ view view_as reshape reshape_as _unsafe_view expand expand_as broadcast_to broadcast_tensors "
    "permute transpose t swapaxes swapdims movedim moveaxis adjoint unsqueeze squeeze flatten ravel unflatten "
    "contiguous clone detach alias to type type_as float half double bfloat16 cpu cuda _to_copy lift_fresh narrow "
    "select slice chunk split split_with_sizes unsafe_chunk unsafe_split tensor_split hsplit vsplit dsplit unbind cat "
    "concat concatenate stack hstack vstack dstack repeat tile repeat_interleave atleast_1d atleast_2d atleast_3d "
    "as_strided requires_grad_ zeros zeros_like new_zeros empty empty_like new_empty data __len__ __iter__"
)
_MAKE_NO_NUMBERS = frozenset(_MOVES.split())


class FunctionCalls(TorchFunctionMode):
    """Tells ``called`` of every function that makes new numbers, ``literal`` of the numbers that tensors are made of.

    On the meta device nothing is left of these. ``inside`` says whether a function is running: an operation outside
    of any comes from code that is not Python.
    """

    def __init__(
        self, literal: Callable[[tuple[Any, ...]], None], called: Callable[[str, Mapping[str, Any]], None]
    ) -> None:
        super().__init__()
        self.inside = False
        self._literal, self._called = literal, called

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor):
            numbers = tuple(value for value in flat([*args, kwargs.get("data")]) if isinstance(value, (int, float)))
            if numbers:
                self._literal(numbers)
        self.inside = True
        try:
            result = func(*args, **kwargs)
        finally:
            self.inside = False
        name = getattr(func, "__name__", "")
        if makes_numbers(name) and (name == "__setitem__" or _has_tensor(result)):
            self._called(without_underscore(name), {"args": args, **kwargs})
        return result


def makes_numbers(name: str) -> bool:
    """Whether a function does more than move elements.

    >>> makes_numbers("relu"), makes_numbers("view"), makes_numbers("transpose_")
    (True, False, False)
    """
    return without_underscore(name) not in _MAKE_NO_NUMBERS


def _has_tensor(result: Any) -> bool:
    return isinstance(result, Tensor) or (
        isinstance(result, (tuple, list)) and any(isinstance(value, Tensor) for value in flat(result))
    )
