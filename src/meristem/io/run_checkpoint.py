"""The checkpoint of a run: the state of its grower, the random numbers of the process, and what the user adds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meristem.io import checkpoint, sharded_checkpoint

_KIND = "meristem-checkpoint-2"


def write(path: str | Path, grower: Mapping[str, Any], extra: Mapping[str, Any], sharded: bool) -> None:
    """Write a file, or, of a sharded run, a folder; that is called by all ranks."""
    kept = {"grower": dict(grower), "random": checkpoint.random_state(), "extra": dict(extra)}
    (sharded_checkpoint if sharded else checkpoint).write(path, kept, kind=_KIND)


def read(path: str | Path, sharded: bool) -> dict[str, Any]:
    """What :func:`write` has written: ``grower``, ``random`` and ``extra``."""
    kept: dict[str, Any] = (sharded_checkpoint if sharded else checkpoint).read(path, kind=_KIND)
    return kept


def go_on_with(random: Mapping[str, Any]) -> None:
    """Take up the random numbers of the process where they stood."""
    checkpoint.set_random_state(random)
