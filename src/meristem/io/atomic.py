"""Files that are never seen half-written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` create a file beside ``path``, then move it into place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.touch()
        mode = beside.stat().st_mode  # as the user's umask has it, whatever the writer makes of it
        write(beside)
        beside.chmod(mode)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
