"""Agreement between the ranks of a distributed run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from meristem.space.arrays import BoolArray


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
