"""Which blocks a user wants to be able to be absent: ``trace(..., depth=...)``."""

from __future__ import annotations

from collections.abc import Sequence

from meristem.tracing.path_patterns import matches, patterns_in

Depth = bool | str | Sequence[str]  # all blocks that are found, or patterns of those that may be absent; !x: none of x


def depth_patterns(depth: Depth) -> list[str]:
    return [] if isinstance(depth, bool) else patterns_in(depth)


def wanted(path: str, depth: Depth) -> bool | None:
    """True if a pattern names the block, False if one excludes it or others are named, None if it is to be found.

    >>> wanted("a.0", True), wanted("a.0", "a.*"), wanted("b", "a.*"), wanted("b", "!a.*"), wanted("a.0", "!a.*")
    (None, True, False, None, False)
    """
    patterns = depth_patterns(depth)
    if matches(path, [pattern[1:] for pattern in patterns if pattern.startswith("!")]):
        return False
    named = [pattern for pattern in patterns if not pattern.startswith("!")]
    return matches(path, named) if named else None
