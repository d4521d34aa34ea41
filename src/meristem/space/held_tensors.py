"""Tensors of a model that plain lists, tuples, dicts and attributes of its modules hold, too.

A parameter that is resized is a new one. Whoever else holds the old one must be told, or goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


@dataclass(frozen=True)
class Place:
    """Where a module holds a tensor: in an attribute, at these keys one inside the other."""

    owner: nn.Module
    attribute: str
    keys: tuple[Any, ...]

    def read(self) -> Tensor:
        """The tensor that is there."""
        value = vars(self.owner)[self.attribute]
        for key in self.keys:
            value = value[key]
        assert isinstance(value, Tensor)
        return value

    def write(self, tensor: Tensor) -> None:
        """Put another tensor there. Lists and dicts stay the same objects."""
        attributes = vars(self.owner)
        attributes[self.attribute] = _with(attributes[self.attribute], self.keys, tensor)


def held_tensors(model: nn.Module) -> dict[int, list[Place]]:
    """The places of all tensors by their ids, but for parameters and buffers where these belong."""
    places: dict[int, list[Place]] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            if name not in _OF_EVERY_MODULE and isinstance(value, (Tensor, list, tuple, dict)):
                for keys, tensor in _tensors_in(value, ()):
                    places.setdefault(id(tensor), []).append(Place(module, name, keys))
    return places


def _tensors_in(value: Any, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    if isinstance(value, Tensor):
        yield keys, value
    elif len(keys) < 8:  # a container may hold itself
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
        )
        for key, item in items:
            yield from _tensors_in(item, (*keys, key))


def _with(container: Any, keys: tuple[Any, ...], tensor: Tensor) -> Any:
    """The container with the tensor at these keys; a tuple is made anew."""
    if not keys:
        return tensor
    inner = _with(container[keys[0]], keys[1:], tensor)
    if not isinstance(container, tuple):
        container[keys[0]] = inner
        return container
    items = [*container[: keys[0]], inner, *container[keys[0] + 1 :]]
    return type(container)(*items) if hasattr(container, "_fields") else type(container)(items)
