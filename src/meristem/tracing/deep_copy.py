"""``copy.deepcopy`` for trees of modules, in a fraction of its time: a trace makes a copy for every reduced model.

A module without a protocol of its own for copies is a dictionary of attributes, nearly all of them numbers, names and
empty dictionaries of hooks. These are copied here; whatever else there is, ``copy.deepcopy`` copies.
"""

from __future__ import annotations

import copy
import copyreg
from collections import OrderedDict
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


def deep_copy(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """What ``copy.deepcopy(model, memo)`` returns."""
    simple: dict[type, bool] = {}
    states: list[tuple[nn.Module, dict[str, Any]]] = []
    for module in modules_by_path(model).values():
        kind = type(module)
        if kind not in simple:
            simple[kind] = _is_simple(kind)
        if simple[kind] and id(module) not in memo and not _PROTOCOL & vars(module).keys():
            state = _state(module)
            if type(state) is dict:
                memo[id(module)] = new = kind.__new__(kind)
                states.append((new, state))
    for new, state in states:
        values = state.items()
        copies = {name: value if type(value) in _ATOMS else _copied(value, memo) for name, value in values}
        new.__setstate__(copies)  # type: ignore[no-untyped-call]
    copied: nn.Module = copy.deepcopy(model, memo)
    return copied


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
