"""Copies of models that share nothing with them, and the tensors inside models and their inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from types import MemberDescriptorType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from meristem.space.held_tensors import held_tensors
from meristem.space.paths import split_path
from meristem.tracing.deep_copy import Copies, deep_copy, modules_by_path


def named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by name, shared ones once."""
    seen: set[int] = set()
    modules = modules_by_path(model)
    for kind in ("_parameters", "_buffers"):
        for path, module in modules.items():
            for name, tensor in getattr(module, kind).items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor


def tensor_at(model: nn.Module, name: str) -> Tensor:
    """The parameter or buffer of that name."""
    path, attribute = split_path(name)
    tensor = getattr(model.get_submodule(path), attribute)
    assert isinstance(tensor, Tensor)
    return tensor


def copy_with(model: nn.Module, make: Callable[[str, Tensor], Tensor], meta: bool) -> nn.Module:
    """A copy of ``model`` whose tensors are ``make(name, tensor)``; the model itself is not touched."""
    memo: dict[int, Any] = {}
    for name, tensor in named_tensors(model):
        memo[id(tensor)] = _like(tensor, make(name, tensor))
    for value in _tensors_beside(model, memo):
        memo[id(value)] = value.detach().to("meta") if meta else value.detach().clone()
    return deep_copy(model, memo)


class ResizedCopies:
    """Copies of one model in which tensors have other sizes, written as surgery on a live model writes them.

    Whoever else holds such a tensor, in a way that surgery does not know, keeps the old one.
    """

    def __init__(self, model: nn.Module, meta: bool) -> None:
        self._model, self._meta, self._copies = model, meta, Copies(model)
        self._tensors = dict(named_tensors(model))
        self._beside = _tensors_beside(model, {id(tensor) for tensor in self._tensors.values()})
        self._names = _names_by_id(model)
        held = held_tensors(model)
        self._is_plain = (
            meta
            and self._copies.all_are_simple
            and not any(id(tensor) in held for tensor in self._tensors.values())
            and all(type(module).__setattr__ is nn.Module.__setattr__ for module in model.modules())
        )

    def make(self, tensor_of: Callable[[str, Tensor], Tensor]) -> nn.Module:
        """A copy whose tensors are ``tensor_of(name, tensor)``."""
        return self._plain(tensor_of) if self._is_plain else _resized(self._model, tensor_of, self._meta)

    def _plain(self, tensor_of: Callable[[str, Tensor], Tensor]) -> nn.Module:
        """The same, where only modules hold tensors: those of another size are put into the copy's own places."""
        memo: dict[int, Any] = {id(value): value.detach().to("meta") for value in self._beside}
        places: list[tuple[str, Tensor]] = []
        for name, tensor in self._tensors.items():
            made = _like(tensor, tensor_of(name, tensor))
            if made.shape == tensor.shape:
                memo[id(tensor)] = made
            else:
                memo[id(tensor)] = tensor
                places += [(alias, made) for alias in self._names[id(tensor)]]
        copied = self._copies.make(memo)
        modules = modules_by_path(copied)
        for alias, made in places:
            path, attribute = split_path(alias)
            module = modules[path] if path in modules else copied.get_submodule(path)
            held: dict[str, Any] = module._parameters if attribute in module._parameters else module._buffers
            held[attribute] = made
        return copied


def _tensors_beside(model: nn.Module, listed: Collection[int]) -> list[Tensor]:
    """Tensors in attributes of modules, but for those whose ids are ``listed``."""
    values = [value for module in modules_by_path(model).values() for value in vars(module).values()]
    return [value for value in values if isinstance(value, Tensor) and id(value) not in listed]


def _resized(model: nn.Module, make: Callable[[str, Tensor], Tensor], meta: bool) -> nn.Module:
    new: dict[str, Tensor] = {}

    def kept(name: str, tensor: Tensor) -> Tensor:
        made = make(name, tensor)
        if made.shape != tensor.shape:
            new[name] = made
        return tensor.detach() if name in new else made

    resized = copy_with(model, kept, meta)
    old = {name: tensor for name, tensor in named_tensors(resized) if name in new}
    held, names = held_tensors(resized), _names_by_id(resized)
    for name, tensor in old.items():
        value = _like(tensor, new[name])
        for alias in names[id(tensor)]:
            path, attribute = split_path(alias)
            setattr(resized.get_submodule(path), attribute, value)
        for place in held.get(id(tensor), ()):
            place.write(value)
    return resized


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    return nn.Parameter(values, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else values


def _names_by_id(model: nn.Module) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for name, tensor in [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]:
        names.setdefault(id(tensor), []).append(name)
    return names


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in a model's inputs or outputs, also inside containers that pytree does not know."""
    return _tensors_in(value, {})


def _tensors_in(value: Any, seen: dict[int, Any]) -> list[Tensor]:
    """``seen``: the objects looked into so far by their ids; an object may hold itself."""
    tensors = []
    for leaf in tree_flatten(value)[0]:
        if isinstance(leaf, Tensor):
            tensors.append(leaf)
        elif id(leaf) not in seen and not isinstance(leaf, (type, ModuleType, nn.Module)):
            seen[id(leaf)] = leaf
            tensors += _tensors_in(_contents(leaf), seen)
    return tensors


def _contents(leaf: Any) -> list[Any]:
    """What an object that pytree does not open holds: its items, slots and attributes."""
    items = list(leaf.values()) if isinstance(leaf, dict) else []
    items += leaf if isinstance(leaf, (list, tuple, set, frozenset)) else []
    slotted = [kind for kind in type(leaf).__mro__ if "__slots__" in vars(kind)]
    slots = [name for kind in slotted for name, of in vars(kind).items() if isinstance(of, MemberDescriptorType)]
    items += [getattr(leaf, name) for name in slots if hasattr(leaf, name)]
    return [*items, *getattr(leaf, "__dict__", {}).values()]
