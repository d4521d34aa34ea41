"""A method's numbers and choices as text: ``peak=2.5``, ``temperature=global``.

Which there are is declared by the policies themselves (`control/text_settings.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from meristem.control.method import Method
from meristem.control.proportions import EVEN
from meristem.control.text_settings import TextSetting, nested_policies, text_settings
from meristem.errors import MeristemError, nearest

_OF_TRAINED_GATES = ("gate", "temperature", "counts_draws")  # without meaning where nothing trains gates


def method_settings(method: Method) -> dict[str, str]:
    """What may be changed by text, and its present value as text."""
    return {key: setting.write(value) for key, setting, value, _ in _settings(method)}


def changed_by_text(method: Method, name: str, changes: list[str]) -> Method:
    """The method called ``name`` with changes like ``peak=2.5`` made to it, one after the other.

    >>> changed_by_text(Method(), "default", ["peak=2.5", "freeze=0.8"]).schedule.peak
    2.5
    """
    for change in changes:
        key, equals, text = (part.strip() for part in change.partition("="))
        if not equals:
            raise MeristemError(f"{change!r} is not of the form KEY=VALUE, e.g. {name}:peak=2.5")
        method = _changed(method, name, key, text)
    return method


def _settings(method: Method) -> Iterator[tuple[str, TextSetting, Any, tuple[str, ...]]]:
    """Key, declaration, value and the path of fields to the policy that has it; the method's own come first."""
    if not method.grows:
        if method.proportions != EVEN:  # the one thing that widths follow from where nothing grows
            yield from _nested_settings(method.proportions, ("proportions",))
        return
    for key, setting in text_settings(method):
        if method.scores.trains_gates or key not in _OF_TRAINED_GATES:
            yield key, setting, getattr(method, key), ()
    for field, policy in nested_policies(method):
        if field in ("schedule", "proportions") and not method.controller.uses_schedule:
            continue
        if method.scores.trains_gates or field not in _OF_TRAINED_GATES:
            yield from _nested_settings(policy, (field,))


def _nested_settings(policy: Any, path: tuple[str, ...]) -> Iterator[tuple[str, TextSetting, Any, tuple[str, ...]]]:
    for key, setting in text_settings(policy):
        yield key, setting, getattr(policy, key), path
    for field, inner in nested_policies(policy):
        yield from _nested_settings(inner, (*path, field))


def _changed(method: Method, name: str, key: str, text: str) -> Method:
    settings = {setting[0]: setting for setting in reversed(list(_settings(method)))}
    if not settings:
        raise MeristemError(f"the method {name} has no numbers or choices to be changed, got {key}={text}")
    if key not in settings:
        keys = list(method_settings(method))
        raise MeristemError(f"the method {name} has no {key!r} to be changed; {nearest(key, keys)}")
    _, setting, _, path = settings[key]
    try:
        value = setting.read(text)
    except (ValueError, KeyError):
        raise MeristemError(f"{key} of the method {name} must be {setting.expected}, got {text!r}") from None
    changed: Method = _replaced(method, path, key, value)
    return changed


def _replaced(policy: Any, path: tuple[str, ...], key: str, value: Any) -> Any:
    if not path:
        return replace(policy, **{key: value})
    return replace(policy, **{path[0]: _replaced(getattr(policy, path[0]), path[1:], key, value)})
