"""``copy.deepcopy`` for trees of modules, in a fraction of its time: a trace makes a copy for every reduced model.

A module without a protocol of its own for copies is a dictionary of attributes, nearly all of them numbers, names and
empty dictionaries of hooks. These are copied here; whatever else there is, ``copy.deepcopy`` copies.
"""

from __future__ import annotations

import copy
import copyreg
from collections import OrderedDict
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

_ATOMS = frozenset(
    (
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        type,
        FunctionType,
        BuiltinFunctionType,
        torch.dtype,
        torch.device,
    )
)
# An object that has one of these says itself how it is copied.
_PROTOCOL = frozenset(
    (
        "__reduce__",
        "__reduce_ex__",
        "__getnewargs__",
        "__getnewargs_ex__",
        "__deepcopy__",
        "__slots__",
    )
)


_EMPTY = frozenset((dict, OrderedDict, set))
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


class Copies:
    """Makes copies of one model, which stays as it is meanwhile; what can be prepared is."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        simple: dict[type, bool] = {}
        self._parts: list[_Part] = []
        modules = modules_by_path(model)
        for module in modules.values():
            kind = type(module)
            if kind not in simple:
                simple[kind] = _is_simple(kind)
            if simple[kind] and not _PROTOCOL & vars(module).keys():
                state = _state(module)
                if type(state) is dict:
                    self._parts.append(_Part.of(module, state))
        self.all_are_simple = len(self._parts) == len(modules)

    def make(self, memo: dict[int, Any]) -> nn.Module:
        """What ``copy.deepcopy(model, memo)`` returns."""
        made = []
        for part in self._parts:
            if id(part.module) not in memo:
                kind = type(part.module)
                memo[id(part.module)] = new = kind.__new__(kind)
                made.append((part, new))
        for part, new in made:
            part.fill(new, memo)
        copied: nn.Module = copy.deepcopy(self._model, memo)
        return copied


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """What is to be copied of a module: what may be shared, what is empty and of which type, and the rest."""

    module: nn.Module
    shared: dict[str, Any]
    empty: tuple[tuple[str, int, type], ...]
    rest: tuple[tuple[str, Any], ...]
    as_it_is: bool  # its class makes no more of a state than to take it

    @classmethod
    def of(cls, module: nn.Module, state: dict[str, Any]) -> _Part:
        shared, empty, rest = dict[str, Any](), [], []
        for name, value in state.items():
            kind = type(value)
            shared[name] = value  # in the order of the original
            if kind in _EMPTY and not value:
                empty.append((name, id(value), kind))
            elif kind not in _ATOMS:
                rest.append((name, value))
        takes_state = getattr(type(module), "__setstate__", None) is nn.Module.__setstate__
        return cls(module, shared, tuple(empty), tuple(rest), takes_state and state.keys() >= _OF_EVERY_MODULE)

    def fill(self, new: nn.Module, memo: dict[int, Any]) -> None:
        """Give a new module its attributes."""
        copies = self.shared.copy()
        for name, number, kind in self.empty:
            copies[name] = memo[number] if number in memo else memo.setdefault(number, kind())
        for name, value in self.rest:
            copies[name] = _copied(value, memo)
        if self.as_it_is:
            vars(new).update(copies)
        else:
            new.__setstate__(copies)  # type: ignore[no-untyped-call]


def deep_copy(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """What ``copy.deepcopy(model, memo)`` returns."""
    return Copies(model).make(memo)


def modules_by_path(model: nn.Module) -> dict[str, nn.Module]:
    """What ``dict(model.named_modules())`` is."""
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()

    def visit(path: str, module: nn.Module) -> None:
        seen.add(id(module))
        found[path] = module
        for name, child in module._modules.items():
            if child is not None and id(child) not in seen:
                visit(f"{path}.{name}" if path else name, child)

    visit("", model)
    return found


def _is_simple(kind: type[nn.Module]) -> bool:
    """Whether objects of this class are no more than their attributes."""
    own = {name for base in kind.__mro__ if base not in (nn.Module, object) for name in vars(base)}
    return kind not in copyreg.dispatch_table and not _PROTOCOL & own


def _state(module: nn.Module) -> Any:
    """What is to be copied of a simple module."""
    saved = getattr(module, "__getstate__", None)
    return vars(module) if saved is None else saved()


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    kind = type(value)
    if kind is dict or kind is OrderedDict:
        memo[id(value)] = new = kind()
        for key, item in value.items():
            key = key if type(key) in _ATOMS else _copied(key, memo)
            new[key] = item if type(item) in _ATOMS else _copied(item, memo)
        return new
    if kind is set and not value:
        memo[id(value)] = empty = set[Any]()
        return empty
    if kind is tuple and all(type(item) in _ATOMS for item in value):
        return value
    return copy.deepcopy(value, memo)
