"""What a setting of a run is: read from the annotation of its field, and nowhere listed again.

A configuration is a frozen dataclass. The type of a field says how its setting is written as text, what `Annotated`
adds to it says which values are allowed and, if it is not the field's own, the name users give it by. A field may be a
configuration itself, and a field marked `Fixed` is no setting. Users see one flat list of names: ``lr``, not
``optimizer.lr``.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from meristem.control.budget import Budget
from meristem.errors import MeristemError, nearest
from meristem_bench.runs.lr_schedule import LrSchedule, parse_lr_schedule
from meristem_bench.runs.optimizer_kind import OptimizerKind, parse_optimizer_kind

T = TypeVar("T")
Config = TypeVar("Config")


# --- what annotations say ---


@dataclass(frozen=True)
class Limit:
    """Which values of a setting are allowed, and the words that say so."""

    allows: Callable[[float], bool]
    words: str


@dataclass(frozen=True)
class Named:
    """The name of a setting that is not called as its field is."""

    name: str


_FIXED = object()
_AT_LEAST_0 = Limit(lambda value: 0 <= value < math.inf, "a number of at least 0")
_AT_LEAST_1 = Limit(lambda value: value >= 1, "at least 1")


def at_most(largest: int) -> Limit:
    return Limit(lambda value: value <= largest, f"at most {largest}")


Fixed = Annotated[T, _FIXED]  # what only a recipe says
Positive = Annotated[int, _AT_LEAST_1]
Count = Annotated[int, _AT_LEAST_0]
Amount = Annotated[float, _AT_LEAST_0]
Share = Annotated[float, _AT_LEAST_0, Limit(lambda value: value <= 1, "a share of at most 1")]
Fraction = Annotated[float, _AT_LEAST_0, Limit(lambda value: value < 1, "less than 1")]


# --- how the types of settings are written ---


def _parse_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _parse_bool(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Kind:
    """How settings of one type are given: as values in a recipe, as text by a user, as JSON holds them in a file."""

    expected: str  # what a message calls it
    types: tuple[type, ...]  # of values
    parse: Callable[[str], Any]  # from text
    to_json: Callable[[Any], Any] = _unchanged

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self.types) and (bool in self.types or not isinstance(value, bool))


_KINDS: dict[Any, Kind] = {
    int: Kind("a whole number", (int,), int),
    float: Kind("a number", (int, float), _parse_number),
    bool: Kind("yes or no", (bool,), _parse_bool),
    str: Kind("text", (str,), str),
    Budget: Kind("a Budget", (Budget,), Budget.parse, lambda budget: budget.text),
    LrSchedule: Kind("a learning-rate schedule", (LrSchedule,), parse_lr_schedule, str),
    OptimizerKind: Kind("a kind of optimizer", (OptimizerKind,), parse_optimizer_kind, str),
}


# --- the settings of a configuration ---


@dataclass(frozen=True)
class Setting:
    """A field of a configuration, or of a configuration within it, that users may change."""

    name: str
    path: tuple[str, ...]  # the fields that lead to it
    kind: Kind
    optional: bool  # may be None
    limits: tuple[Limit, ...]
    default: Any  # `dataclasses.MISSING` if every recipe says it

    def parse(self, value: Any) -> Any:
        """The value that is given as text, or that stands for itself."""
        if value is None and self.optional:
            return None
        try:
            return self.kind.parse(str(value))
        except (ValueError, KeyError):
            raise MeristemError(f"{self.name} must be {self.kind.expected}, got {str(value)!r}") from None

    def check(self, value: Any) -> None:
        """Refuse a value, given in Python, that no text could stand for, or that is not allowed."""
        if value is None and self.optional:
            return
        if not self.kind.accepts(value):
            raise MeristemError(f"{self.name} must be {self.kind.expected}, got {value!r} ({type(value).__name__})")
        for limit in self.limits:
            if not limit.allows(value):
                raise MeristemError(f"{self.name} must be {limit.words}, got {value}")

    def value(self, config: Any) -> Any:
        for field in self.path:
            config = getattr(config, field)
        return config


@dataclass(frozen=True)
class _Field:
    """A field with what its annotation says of it."""

    name: str  # as users give it, unless it is fixed
    path: tuple[str, ...]
    type: Any
    extras: tuple[Any, ...]
    default: Any


def _fields(config: type) -> Iterator[_Field]:
    """The fields of a configuration, with those of the configurations within it in place of these."""
    annotations = typing.get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):
        annotation = annotations[field.name]
        annotated = typing.get_origin(annotation) is Annotated
        base, extras = (annotation.__origin__, annotation.__metadata__) if annotated else (annotation, ())
        if dataclasses.is_dataclass(base) and base not in _KINDS:
            yield from (
                dataclasses.replace(inner, path=(field.name, *inner.path)) for inner in _fields(typing.cast(type, base))
            )
        else:
            name = next((extra.name for extra in extras if isinstance(extra, Named)), field.name)
            yield _Field(name, (field.name,), base, extras, field.default)


def settings_of(config: type) -> Mapping[str, Setting]:
    """All settings of a configuration and of those within it, by the names that users give them by."""
    return _read_settings(config)


@cache
def _read_settings(config: type) -> Mapping[str, Setting]:
    settings: dict[str, Setting] = {}
    for field in _fields(config):
        if _FIXED in field.extras:
            continue
        assert field.name not in settings, f"two settings are named {field.name}"
        choices = [choice for choice in typing.get_args(field.type) or (field.type,) if choice is not types.NoneType]
        optional = len(choices) < len(typing.get_args(field.type))
        limits = tuple(extra for extra in field.extras if isinstance(extra, Limit))
        settings[field.name] = Setting(field.name, field.path, _KINDS[choices[0]], optional, limits, field.default)
    return settings


def check_settings(config: object) -> None:
    """Refuse what the fields of a configuration may not be; one within it checks itself."""
    for setting in settings_of(type(config)).values():
        if len(setting.path) == 1:
            setting.check(setting.value(config))


def parse_settings(config: type, texts: Mapping[str, Any]) -> dict[str, Any]:
    """The values of settings that are given as text, or as values that are written so."""
    settings = settings_of(config)
    for name in texts:
        if name not in settings:
            raise MeristemError(f"a run has no setting {name!r}; {nearest(name, settings)}")
    return {name: settings[name].parse(text) for name, text in texts.items()}


def settings_as_json(config: object) -> dict[str, Any]:
    """All settings by name; `parse_settings` reads them back."""
    values = {setting: setting.value(config) for setting in settings_of(type(config)).values()}
    return {s.name: None if value is None else s.kind.to_json(value) for s, value in values.items()}


def replace_fields(config: Config, changes: Mapping[str, Any]) -> Config:
    """The same configuration with other values, by the names of its own fields or of those of configurations in it."""
    paths = {field.name: field.path for field in _fields(type(config))}
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        first, *rest = paths.get(name, (name,))
        if rest:
            inner.setdefault(first, {})[rest[0]] = value
        else:
            own[first] = value
    for name, values in inner.items():
        own[name] = dataclasses.replace(own.get(name, getattr(config, name)), **values)
    return dataclasses.replace(config, **own)  # type: ignore[type-var]


def defaults_as_json(config: type) -> dict[str, Any]:
    """The defaults of the settings that have one; `parse_settings` reads them back."""
    defaults = {s: s.default for s in settings_of(config).values() if s.default is not dataclasses.MISSING}
    return {s.name: None if default is None else s.kind.to_json(default) for s, default in defaults.items()}
