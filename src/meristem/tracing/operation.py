"""One operation as torch dispatches it: its arguments by name, the numbers among them, whether it is pointwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Whole numbers by these names are not sizes or dimensions: the result depends on them, and a width may be in them.
_NUMBERS = ("alpha", "beta", "scale", "value", "fill_value", "min", "max", "s", "weight", "self", "other", "p", "ord")


@dataclass(frozen=True, eq=False, slots=True)
class ExecutedOp:
    """An operation that was executed, with the real tensors of its arguments and results."""

    func: Any
    arguments: Any
    kwargs: Any
    outs: Any


def is_pointwise(func: Any, name: str) -> bool:
    """Torch tags element-wise operations, though not always their in-place forms."""
    packet = getattr(torch.ops.aten, name, None) if name else None
    forms = [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else [func]
    return any(torch.Tag.pointwise in form.tags for form in [func, *forms])


def without_underscore(name: str) -> str:
    """The name of the operation that an in-place one is a form of.

    >>> without_underscore("relu_"), without_underscore("relu"), without_underscore("__and__")
    ('relu', 'relu', '__and__')
    """
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def flat(value: Any) -> list[Any]:
    """The leaves of nested lists and tuples."""
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (list, tuple)) else [value]


def by_name(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call by name, those left out with their defaults."""
    named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
    for argument in func._schema.arguments:
        if argument.name not in named:
            named[argument.name] = kwargs.get(argument.name, argument.default_value)
    return named


def factors(arguments: Mapping[str, Any]) -> tuple[float, ...]:
    """The plain numbers that an operation multiplies, adds or fills with, and the like; sizes are none of them."""
    return tuple(
        value
        for name, value in arguments.items()
        if isinstance(value, float) or (name in _NUMBERS and isinstance(value, int))
    )


class TensorLiterals(TorchFunctionMode):
    """Calls ``seen`` with the plain numbers that tensors are made of; on the meta device nothing is left of them."""

    def __init__(self, seen: Callable[[tuple[Any, ...]], None]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor):
            numbers = tuple(value for value in flat([*args, kwargs.get("data")]) if isinstance(value, (int, float)))
            if numbers:
                self._seen(numbers)
        return func(*args, **kwargs)
