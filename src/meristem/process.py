"""What concerns the whole process: agreement between the ranks of a distributed run, and memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from meristem.space.axis import BoolArray


def distributed() -> bool:
    """Whether this process is a rank of a distributed run."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def agreed(masks: Mapping[str, BoolArray], device: torch.device) -> Mapping[str, BoolArray]:
    """The decision of rank 0 on every rank of a distributed run: replicas of different widths would hang."""
    if not distributed():
        return masks
    flat = torch.from_numpy(np.concatenate(list(masks.values())).astype(np.uint8)).to(device)
    torch.distributed.broadcast(flat, src=0)
    parts = np.split(flat.cpu().numpy().astype(np.bool_), np.cumsum([len(mask) for mask in masks.values()])[:-1])
    return dict(zip(masks, parts, strict=True))


def agreed_numbers(numbers: Sequence[float], device: torch.device) -> list[float]:
    """The numbers of rank 0 on every rank of a distributed run."""
    if not distributed():
        return list(numbers)
    flat = torch.tensor(numbers, dtype=torch.float32, device=device)
    torch.distributed.broadcast(flat, src=0)
    return [float(number) for number in flat]


def averaged(values: Tensor) -> Tensor:
    """The mean over the ranks of a distributed run, as that of gradients is."""
    if distributed():
        values = values.clone()
        torch.distributed.all_reduce(values)
        values /= torch.distributed.get_world_size()
    return values


def peak_bytes(device: torch.device) -> int:
    """The most memory used so far: of the device if it has its own, otherwise of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


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
