"""A method as text: the name of a preset, and with it, if wanted, some of the preset's numbers changed.

``default:peak=2.5`` is the default whose plan rises to two and a half times the budget, ``iss:strength=0.02`` is ISS
with a stronger lasso. Text is what a command line, a run's file and a table can hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from meristem.control.controller import Exact
from meristem.control.method import Method, named_methods
from meristem.errors import MeristemError, nearest

# By the part of a method that has them. A part may lack some: the controller of AutoGrow has no base.
_NUMBERS = {
    "learning": ("memory", "grace_epochs"),
    "schedule": ("start", "grow_until", "peak", "hold_until", "land_at"),
    "controller": ("align", "base", "deep_base", "every", "patience", "threshold"),
    "lasso": ("strength", "threshold"),
}
_OWN = ("freeze", "opening")  # of the method itself


def named_method(text: str, besides: Collection[str] = (), what: str = "method") -> Method:
    """The method that the text stands for. What is refused is called ``what``; ``besides`` are names the user has, too.

    >>> named_method("default:peak=2.5:freeze=0.8").schedule.peak
    2.5
    """
    name, *changes = text.split(":")
    if name in besides:
        raise MeristemError(f"the {what} {name} has no numbers to be changed, got {text!r}")
    if name not in (known := named_methods()):
        raise MeristemError(f"there is no {what} {name!r}; {nearest(name, [*besides, *known])}")
    method = known[name]()
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise MeristemError(f"the {what} {text!r} is not of the form NAME:KEY=VALUE, e.g. default:peak=2.5")
        method = _changed(method, name, key.strip(), value.strip())
    return method


def numbers(method: Method) -> dict[str, float]:
    """What may be changed by name, and what it is."""
    own = {key: getattr(method, key) for key in _OWN}
    return {**own, **{key: getattr(part, key) for _, part, key in _places(method)}}


def _places(method: Method) -> Iterator[tuple[str, Any, str]]:
    """Part by name, the part itself and a number of it. Only a plan that is followed has numbers worth changing."""
    for name, keys in _NUMBERS.items():
        part = getattr(method, name)
        if name != "schedule" or isinstance(method.controller, Exact):
            yield from ((name, part, key) for key in keys if hasattr(part, key))


def _changed(method: Method, name: str, key: str, value: str) -> Method:
    known = numbers(method)
    if key not in known:
        raise MeristemError(f"the method {name} has no {key!r} to be changed; {nearest(key, list(known))}")
    try:
        number = type(known[key])(value)
        if number != number:  # not a number, says float
            raise ValueError
    except ValueError:
        kind = "whole number" if isinstance(known[key], int) else "number"
        raise MeristemError(f"{key} of the method {name} must be a {kind}, got {value!r}") from None
    if key in _OWN:
        own: dict[str, Any] = {key: number}
        return replace(method, **own)
    part_name, part = next((part_name, part) for part_name, part, its in _places(method) if its == key)
    return replace(method, **{part_name: replace(part, **{key: number})})
