"""Batches on their way to the device."""

from __future__ import annotations

import torch
from torch import Tensor


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device.

    To a GPU it goes from memory that the system does not move, so that the copy runs while the host goes on. Data that
    are read by workers come in such memory already.
    """
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)
