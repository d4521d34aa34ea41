"""Agreement between the ranks of a distributed run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from meristem.space.arrays import BoolArray, FloatArray

T = TypeVar("T")


def is_distributed() -> bool:
    """Tell whether this process is a rank of a distributed run."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def broadcast_masks(masks: Mapping[str, BoolArray], device: torch.device) -> Mapping[str, BoolArray]:
    """Return the masks of rank 0 on every rank of a distributed run: replicas of different widths would hang."""
    if not is_distributed() or not masks:
        return masks
    flat = torch.from_numpy(np.concatenate(list(masks.values())).astype(np.uint8)).to(device)
    torch.distributed.broadcast(flat, src=0)
    parts = np.split(flat.cpu().numpy().astype(np.bool_), np.cumsum([len(mask) for mask in masks.values()])[:-1])
    return dict(zip(masks, parts, strict=True))


def broadcast_arrays(arrays: Mapping[str, FloatArray], device: torch.device) -> Mapping[str, FloatArray]:
    """Return the arrays of rank 0 on every rank of a distributed run."""
    if not is_distributed():
        return arrays
    return {name: np.array(broadcast_numbers(values.tolist(), device)) for name, values in arrays.items()}


def broadcast_numbers(numbers: Sequence[float], device: torch.device) -> list[float]:
    """Return the numbers of rank 0 on every rank of a distributed run."""
    if not is_distributed():
        return list(numbers)
    flat = torch.tensor(numbers, dtype=torch.float32, device=device)
    torch.distributed.broadcast(flat, src=0)
    return [float(number) for number in flat]


def mean_of_numbers(numbers: Sequence[float], device: torch.device) -> list[float]:
    """Return the mean of each number over the ranks of a distributed run."""
    if not is_distributed():
        return list(numbers)
    return [total / torch.distributed.get_world_size() for total in sum_of_numbers(numbers, device)]


def mean_of_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return each metric as the mean over the ranks of a distributed run that give it."""
    if not is_distributed():
        return dict(metrics)
    every = gathered(dict(metrics))
    names = dict.fromkeys(name for given in every for name in given)
    given_values = {name: [given[name] for given in every if name in given] for name in names}
    return {name: sum(values) / len(values) for name, values in given_values.items()}


def sum_of_numbers(numbers: Sequence[float], device: torch.device) -> list[float]:
    """Return the sum of each number over the ranks of a distributed run."""
    if not is_distributed():
        return list(numbers)
    flat = torch.tensor(numbers, dtype=torch.float64 if device.type == "cpu" else torch.float32, device=device)
    torch.distributed.all_reduce(flat)
    return [float(number) for number in flat]


def take_from_rank_0(tensors: Iterable[Tensor]) -> None:
    """Give these tensors the values that they have on rank 0 of a distributed run."""
    for tensor in tensors if is_distributed() else ():
        values = tensor.detach().contiguous()
        torch.distributed.broadcast(values, src=0)
        tensor.detach().copy_(values)


def gathered(value: T) -> list[T]:
    """Return the values of all ranks of a distributed run, on every rank; they are pickled."""
    if not is_distributed():
        return [value]
    every = [value] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(every, value)
    return every


def from_rank_0(value: T) -> T:
    """Return the value of rank 0 on every rank of a distributed run; it is pickled."""
    if not is_distributed():
        return value
    held = [value]
    torch.distributed.broadcast_object_list(held, src=0)
    return held[0]


def same_on_all_ranks(tensors: Iterable[Tensor]) -> bool:
    """Tell whether every rank of a distributed run has these tensors bit for bit."""
    if not is_distributed():
        return True
    whole_numbers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [
        torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in (each.detach() for each in tensors)
    ]
    sums = [each.contiguous().view(whole_numbers[each.element_size()]).sum(dtype=torch.int64) for each in sums]
    if not sums:
        return True
    lowest = torch.stack([each.to(sums[0].device) for each in sums])
    highest = lowest.clone()
    torch.distributed.all_reduce(lowest, op=torch.distributed.ReduceOp.MIN)
    torch.distributed.all_reduce(highest, op=torch.distributed.ReduceOp.MAX)
    return bool((lowest == highest).all())


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the sum over the ranks of a distributed run."""
    if is_distributed():
        values = values.clone()
        torch.distributed.all_reduce(values)
    return values


def mean_over_ranks(values: Tensor) -> Tensor:
    """Return the mean over the ranks of a distributed run, as it is taken of gradients."""
    if is_distributed():
        values = values.clone()
        torch.distributed.all_reduce(values)
        values /= torch.distributed.get_world_size()
    return values
