"""Settings of a run as text: understood here, and nowhere guessed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from meristem.control.budget import Budget
from meristem.errors import MeristemError, nearest
from meristem_bench.runs.lr_schedule import parse_rate


def _whole(text: str) -> int:
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _yes_or_no(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]


_KINDS: dict[Callable[[str], Any], tuple[str, ...]] = {
    _whole: (
        *("epochs", "fine_tune", "batch", "seed", "threads"),
        *("classes", "held_out", "samples", "size", "workers", "unroll"),
    ),
    _number: ("lr", "momentum", "weight_decay", "warmup", "fine_tune_lr", "clip", "keep", "keep_dense"),
    _yes_or_no: ("nesterov", "depth", "bf16", "channels_last", "compile"),
    Budget.parse: ("budget",),
    parse_rate: ("rate", "fine_tune_rate"),
    str: ("method", "device", "data_dir", "widths", "pin"),
}
_EXPECTED: dict[Callable[[str], Any], str] = {_whole: "a whole number", _number: "a number", _yes_or_no: "yes or no"}
_OPTIONAL = ("data_dir", "widths", "fine_tune_rate")
SETTINGS = tuple(name for names in _KINDS.values() for name in names)


def changed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the settings, given as text or as values, stand for."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise MeristemError(f"a run has no setting {name!r}; {nearest(name, SETTINGS)}")
        convert = next(kind for kind, names in _KINDS.items() if name in names)
        try:
            found[name] = None if value is None and name in _OPTIONAL else convert(str(value))
        except (ValueError, KeyError) as error:
            wrong = f"{name} must be {_EXPECTED[convert]}, got {str(value)!r}" if convert in _EXPECTED else str(error)
            raise MeristemError(wrong) from None
    return found


def check_kinds(values: Mapping[str, Any]) -> None:
    """Settings that were given as values in Python, in a recipe of the user's own, are what their text would give."""
    plain: dict[Callable[[str], Any], tuple[type, ...]] = {_whole: (int,), _number: (int, float), str: (str,)}
    for kind, types in plain.items():
        for name in _KINDS[kind]:
            value = values[name]
            right = isinstance(value, types) and not isinstance(value, bool)
            if not right and not (value is None and name in _OPTIONAL):
                expected = _EXPECTED.get(kind, "text")
                raise MeristemError(f"{name} must be {expected}, got {value!r} ({type(value).__name__})")


def budget_text(budget: Budget) -> str:
    """What ``Budget.parse`` reads back."""
    amounts = {name: getattr(budget, name) for name in ("params", "macs", "spend")}
    return ",".join(f"{name}={amount}" for name, amount in amounts.items() if amount is not None)
