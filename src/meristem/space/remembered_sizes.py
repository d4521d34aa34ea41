"""Sizes that modules remember in attributes: ``in_channels``, ``num_heads``, ``normalized_shape[0]``."""

from __future__ import annotations

from torch import nn


def attribute_and_index(name: str) -> tuple[str, int | None]:
    """The attribute and, for an entry of a tuple, the index.

    >>> attribute_and_index("num_heads"), attribute_and_index("normalized_shape[0]")
    (('num_heads', None), ('normalized_shape', 0))
    """
    attribute, bracket, index = name.rstrip("]").partition("[")
    return attribute, int(index) if bracket else None


def read_size(module: nn.Module, name: str, index: int | None) -> object:
    """What a module has there, whatever it is; None if it has nothing.

    >>> read_size(nn.LayerNorm(8), "normalized_shape", 0), read_size(nn.Linear(3, 4), "heads", None)
    (8, None)
    """
    value: object = getattr(module, name, None)
    if index is not None and isinstance(value, (tuple, list)) and index < len(value):
        return value[index]
    return value


def write_size(module: nn.Module, name: str, index: int | None, value: int) -> None:
    """Set a size that a module remembers; ``index`` says which entry, when it is a tuple."""
    if index is None:
        setattr(module, name, value)
    else:
        old = getattr(module, name)
        setattr(module, name, type(old)([*old[:index], value, *old[index + 1 :]]))
