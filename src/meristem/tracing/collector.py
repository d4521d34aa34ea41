"""A pause of Python's search for cycles of objects that nobody needs any more."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search meanwhile, if there would be any.

    A trace makes many small objects and nearly no cycles, but every so many objects the search goes through all that
    the process holds: torch and its libraries, about a tenth of the time of a trace.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
