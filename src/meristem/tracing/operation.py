"""One operation as torch dispatches it: its arguments by name, the numbers among them, whether it is pointwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

# Whole numbers by these names are not sizes or dimensions: the result depends on them, and a width may be in them.
_NUMBER_NAMES = (
    "alpha beta scale value fill_value min max s weight self other p ord k n low high from to diagonal correction "
    "num_samples num_classes"
)
_WINDOW_NAMES = "kernel_size stride padding dilation output_size output_padding shifts"  # lists of whole numbers
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
_NUMBERS, _WINDOWS = frozenset(_NUMBER_NAMES.split()), frozenset(_WINDOW_NAMES.split())


@dataclass(frozen=True, eq=False, slots=True)
class ExecutedOp:
    """An operation that was executed, with the real tensors of its arguments and results, and the module it ran in.

    ``differentiated``: torch records gradients there, if the run as a whole lets it.
    """

    func: Any
    arguments: Any
    kwargs: Any
    outs: Any
    where: str
    differentiated: bool


@cache
def makes_numbers(name: str) -> bool:
    """Whether a function does more than move elements.

    >>> makes_numbers("relu"), makes_numbers("view"), makes_numbers("transpose_")
    (True, False, False)
    """
    return without_underscore(name) not in _MAKE_NO_NUMBERS


@cache
def is_pointwise(func: Any, name: str) -> bool:
    """Torch tags element-wise operations, though not always their in-place forms."""
    packet = getattr(torch.ops.aten, name, None) if name else None
    forms = [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else [func]
    return any(torch.Tag.pointwise in form.tags for form in [func, *forms])


@cache
def without_underscore(name: str) -> str:
    """The name of the operation that an in-place one is a form of.

    >>> without_underscore("relu_"), without_underscore("relu"), without_underscore("__and__")
    ('relu', 'relu', '__and__')
    """
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def flat(value: Any) -> list[Any]:
    """The leaves of nested lists and tuples."""
    if not isinstance(value, (list, tuple)):
        return [value]
    leaves: list[Any] = []
    for item in value:
        if isinstance(item, (list, tuple)):
            leaves += flat(item)
        else:
            leaves.append(item)
    return leaves


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """What an operation says of itself: its names, its arguments, and what becomes of them.

    ``returns_new``: nothing that it returns shares memory with an argument, and nothing is written to. ``in_place``: it
    returns its first argument, and writes to nothing else. ``takes_device``: it may be told where to make its result.
    ``written`` are the arguments that it writes to, ``draws`` says that it draws random numbers.
    """

    namespace: str
    name: str
    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    returns_new: bool
    in_place: bool
    takes_device: bool
    written: tuple[str, ...]
    draws: bool
    pointwise: bool

    def by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a call by name, those left out with their defaults."""
        named = dict(self.defaults)
        named.update(zip(self.names, args, strict=False))
        named.update(kwargs)
        return named


@cache
def signature(func: Any) -> Signature:
    """The signature of an operation of torch, which never changes."""
    arguments, returns = func._schema.arguments, func._schema.returns
    written = [argument.alias_info is not None and argument.alias_info.is_write for argument in arguments]
    name = func.overloadpacket.__name__
    shared = [each.alias_info is not None for each in (*arguments, *returns)]
    return Signature(
        namespace=func.namespace,
        name=name,
        names=tuple(argument.name for argument in arguments),
        defaults={argument.name: argument.default_value for argument in arguments},
        returns_new=not any(shared),
        in_place=len(returns) == 1 and sum(shared) == 2 and bool(written) and written[0],
        takes_device=any(argument.name == "device" for argument in arguments),
        written=tuple(argument.name for argument, is_written in zip(arguments, written, strict=True) if is_written),
        draws=torch.Tag.nondeterministic_seeded in func.tags,
        pointwise=is_pointwise(func, without_underscore(name)),
    )


def written_tensors(func: Any, arguments: Mapping[str, Any]) -> list[Tensor]:
    """The arguments, by name, that an operation writes to in place."""
    written = signature(func).written
    if not written:
        return []
    return [value for value in flat([arguments[name] for name in written]) if isinstance(value, Tensor)]


def factors(arguments: Mapping[str, Any]) -> tuple[float, ...]:
    """The plain numbers that an operation multiplies, adds or fills with, and the like; sizes are none of them."""
    numbers: list[float] = []
    for name, value in arguments.items():
        if value is None or isinstance(value, Tensor):
            continue
        if isinstance(value, float) or (name in _NUMBERS and isinstance(value, int)):
            numbers.append(value)
        elif name in _WINDOWS and isinstance(value, (list, tuple)):
            numbers.extend(value)
    return tuple(numbers)


def all_numbers(arguments: Mapping[str, Any]) -> tuple[float, ...]:
    """All plain numbers that an operation is called with."""
    return tuple(value for value in flat(list(arguments.values())) if isinstance(value, (int, float)))
