"""Memory that training has taken."""

from __future__ import annotations

import sys

import torch


def peak_bytes(device: torch.device) -> int:
    """The most memory used so far: of the device if it has its own, otherwise of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
