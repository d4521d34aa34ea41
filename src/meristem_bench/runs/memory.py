"""How the C library of a CPU run treats freed memory."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # as malloc.h numbers them


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed for what is asked for next; returns whether it can be told so.

    Otherwise glibc gives large tensors back to the system at once and gets them anew in every step, page by page, which
    took a quarter of the step of a small language model. What a process holds in the end is what it held at its peak.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1))
