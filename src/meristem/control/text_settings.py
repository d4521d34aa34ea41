"""Numbers and choices of a policy that a user may give as text, declared where the policy declares its fields.

    @dataclass(frozen=True)
    class Lasso:
        strength: float = number(0.002)

`control/method_text.py` reads ``iss:strength=0.02`` with these declarations; nothing else lists names of settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_KEY = "meristem setting"


@dataclass(frozen=True)
class TextSetting:
    """How a value is read from text, how it is written, and what to say when the text is not understood."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]
    expected: str


def number(default: float) -> Any:
    """A field that holds a float."""
    return _field(default, TextSetting(_read_number, repr, "a number"))


def whole_number(default: int) -> Any:
    """A field that holds an int."""
    return _field(default, TextSetting(int, repr, "a whole number"))


def flag(default: bool) -> Any:
    """A field that holds a bool."""
    return choice(default, {"yes": True, "no": False})


def word(default: str) -> Any:
    """A field that holds a text without colons, such as the name of a metric."""
    return _field(default, TextSetting(str, str, "a word"))


def stairs(default: tuple[tuple[float, float], ...] = ()) -> Any:
    """A field that holds steps of a height, each from a moment on: ``0.2@0+1@0.6``."""
    return _field(default, TextSetting(_read_stairs, _write_stairs, "HEIGHT@MOMENT+HEIGHT@MOMENT..., e.g. 0.2@0+1@0.6"))


def choice(default: Any, options: Mapping[str, Any]) -> Any:
    """A field that holds one of several policies, each with a name."""

    def write(value: Any) -> str:
        return next(name for name, option in options.items() if option == value)

    return _field(default, TextSetting(lambda text: options[text], write, f"one of {', '.join(options)}"))


def text_settings(policy: Any) -> Iterator[tuple[str, TextSetting]]:
    """The names and declarations of a policy's own settings whose present value can be written as text."""
    for field in dataclasses.fields(policy):
        setting = field.metadata.get(_KEY)
        if setting is not None and _writable(setting, getattr(policy, field.name)):
            yield field.name, setting


def nested_policies(policy: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a policy that hold policies with fields of their own."""
    for field in dataclasses.fields(policy):
        value = getattr(policy, field.name)
        if dataclasses.is_dataclass(value):
            yield field.name, value


def _field(default: Any, setting: TextSetting) -> Any:
    return dataclasses.field(default=default, metadata={_KEY: setting})


def _read_number(text: str) -> float:
    value = float(text)
    if value != value:  # "nan" is not a number that anyone means
        raise ValueError(text)
    return value


def _read_stairs(text: str) -> tuple[tuple[float, float], ...]:
    """Pairs of a moment and a height."""
    pairs = [step.split("@") for step in text.split("+")] if text else []
    return tuple((_read_number(moment), _read_number(height)) for height, moment in pairs)


def _write_stairs(steps: tuple[tuple[float, float], ...]) -> str:
    return "+".join(f"{height!r}@{moment!r}" for moment, height in steps)


def _writable(setting: TextSetting, value: Any) -> bool:
    """Whether the text form of ``value`` reads back; a policy of the user's own has none."""
    try:
        setting.write(value)
    except StopIteration:
        return False
    return True
