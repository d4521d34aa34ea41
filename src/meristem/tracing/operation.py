"""One operation as torch dispatches it: its arguments by name, the numbers among them, whether it is pointwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Whole numbers by these names are not sizes or dimensions: the result depends on them, and a width may be in them.
_NUMBER_NAMES = (
    "alpha beta scale value fill_value min max s weight self other p ord k n low high from to diagonal correction "
    "num_samples num_classes"
)
_WINDOW_NAMES = "kernel_size stride padding dilation output_size output_padding shifts"  # lists of whole numbers
_NUMBERS, _WINDOWS = frozenset(_NUMBER_NAMES.split()), frozenset(_WINDOW_NAMES.split())


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


def written_tensors(func: Any, arguments: Mapping[str, Any]) -> list[Tensor]:
    """The arguments, by name, that an operation writes to in place."""
    if not func._schema.is_mutable:
        return []
    written = {each.name for each in func._schema.arguments if each.alias_info is not None and each.alias_info.is_write}
    values = flat([value for name, value in arguments.items() if name in written])
    return [value for value in values if isinstance(value, Tensor)]


def factors(arguments: Mapping[str, Any]) -> tuple[float, ...]:
    """The plain numbers that an operation multiplies, adds or fills with, and the like; sizes are none of them."""
    numbers: list[float] = []
    for name, value in arguments.items():
        if isinstance(value, float) or (name in _NUMBERS and isinstance(value, int)):
            numbers.append(value)
        elif name in _WINDOWS and isinstance(value, (list, tuple)):
            numbers.extend(value)
    return tuple(numbers)


def all_numbers(arguments: Mapping[str, Any]) -> tuple[float, ...]:
    """All plain numbers that an operation is called with."""
    return tuple(value for value in flat(list(arguments.values())) if isinstance(value, (int, float)))
