"""Tensors of which every rank has a part: whole, as parts, and which rows the part here has.

Torch's own module for them takes longer to import than all of this library, so it is imported where there are such
tensors, and these are known by the name of their class.
"""

from __future__ import annotations

from typing import Any

import torch.distributed
from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    return type(tensor).__name__ == "DTensor"


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor, on every rank; all ranks call it. One that is whole is returned as it is."""
    if not is_sharded(tensor):
        return tensor
    gathered: Tensor = _sharded(tensor).full_tensor()
    return gathered.detach().clone()


def like(values: Tensor, sharded: Tensor) -> Tensor:
    """The part of ``values``, which every rank has, that a tensor sharded like ``sharded`` has here."""
    from torch.distributed.tensor import distribute_tensor

    other = _sharded(sharded)
    return distribute_tensor(values, other.device_mesh, other.placements, src_data_rank=None)


def is_cut_by_rows(tensor: Tensor) -> bool:
    """Whether all ranks of the run share the rows of a sharded tensor among them, and nothing else."""
    from torch.distributed.tensor import Shard

    ranks = torch.distributed.get_world_size()
    return tuple(_sharded(tensor).placements) == (Shard(0),) and _sharded(tensor).device_mesh.size() == ranks


def part_here(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor: some of its rows, or all of it."""
    if not is_sharded(tensor):
        return tensor
    part: Tensor = _sharded(tensor).to_local()
    return part


def first_row_here(sharded: Tensor) -> int:
    """Where the rows that this rank has of a tensor begin."""
    mesh = _sharded(sharded).device_mesh
    rows = -(-len(sharded) // int(mesh.size()))
    return min(len(sharded), rows * int(mesh.get_local_rank()))


def _sharded(tensor: Tensor) -> Any:
    """As torch's class of such tensors, which is not imported here."""
    assert is_sharded(tensor)
    return tensor
