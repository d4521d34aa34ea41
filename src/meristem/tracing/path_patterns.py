"""Patterns on module paths, as users give them: ``"stem.*"``."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from torch import nn

from meristem.errors import TraceError


def patterns_in(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether any of the patterns is that of ``path``.

    >>> matches("stages.0.conv", ["head", "stages.*"]), matches("stem", ["stages.*"])
    (True, False)
    """
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def check_patterns(model: nn.Module, option: str, patterns: Iterable[str]) -> None:
    """Raise if a pattern (without its ``!``, which excludes) matches no module; ``option`` is where it was given."""
    paths = [path for path, _ in model.named_modules() if path]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(path, pattern.removeprefix("!")) for path in paths):
            near = get_close_matches(pattern, paths, 3, 0.4) or paths[:3]
            hint = f"the nearest are {', '.join(near)}" if near else "the model has no submodules"
            raise TraceError(f"{option}={pattern!r} matches no module; {hint}")
