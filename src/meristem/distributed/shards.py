"""Tensors of which every rank has a part: whole, as parts, and which rows the part here has."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard, distribute_tensor


def is_sharded(tensor: Tensor) -> bool:
    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor, on every rank; all ranks call it. One that is whole is returned as it is."""
    return tensor.full_tensor().detach().clone() if isinstance(tensor, DTensor) else tensor


def like(values: Tensor, sharded: Tensor) -> Tensor:
    """The part of ``values``, which every rank has, that a tensor sharded like ``sharded`` has here."""
    assert isinstance(sharded, DTensor)
    return distribute_tensor(values, sharded.device_mesh, sharded.placements, src_data_rank=None)


def is_cut_by_rows(tensor: Tensor) -> bool:
    """Whether all ranks of the run share the rows of a tensor among them, and nothing else."""
    return (
        isinstance(tensor, DTensor)
        and tuple(tensor.placements) == (Shard(0),)
        and tensor.device_mesh.size() == torch.distributed.get_world_size()
    )


def part_here(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor: some of its rows, or all of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def first_row_here(tensor: Tensor) -> int:
    """Where the rows that this rank has of a tensor begin."""
    if not isinstance(tensor, DTensor):
        return 0
    ranks = tensor.device_mesh.size()
    return min(len(tensor), -(-len(tensor) // ranks) * tensor.device_mesh.get_local_rank())
