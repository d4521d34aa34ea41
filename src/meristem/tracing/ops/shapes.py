"""The results of a few common operations on the meta device, without asking torch.

Torch works these shapes out in Python. That takes most of the time of a trace and, at the first one, imports torch's
compiler. A function returns None where it does not apply; torch is asked then. ``table.py`` says which operation uses
which function.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def batch_norm(arguments: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    tensor = arguments["input"]
    channels = tensor.shape[1]
    for name in ("weight", "bias", "running_mean", "running_var"):
        if arguments.get(name) is not None and len(arguments[name]) != channels:
            raise RuntimeError(f"batch norm: {name} has {len(arguments[name])} channels, the input {channels}")
    saved = channels if arguments.get("training") else 0
    return torch.empty_like(tensor), tensor.new_empty(saved), tensor.new_empty(saved)


def elementwise_pair(arguments: Mapping[str, Any]) -> Tensor | None:
    """Two tensors of one shape and type, in a memory format that the result shares."""
    one, two = arguments["self"], arguments["other"]
    if not isinstance(two, Tensor) or one.shape != two.shape or one.dtype != two.dtype:
        return None
    if one.stride() == two.stride():
        return torch.empty_like(one)
    if not (_row_major(one) and _row_major(two)):
        return None
    total: Tensor = one.new_empty(one.shape)
    return total


def _row_major(tensor: Tensor) -> bool:
    """Whether strides fall from the first dimension to the last."""
    strides = tensor.stride()
    return all(before >= after for before, after in pairwise(strides))


def elementwise_pair_in_place(arguments: Mapping[str, Any]) -> Tensor | None:
    """The first tensor itself, if the second has its shape and type."""
    one: Tensor = arguments["self"]
    two = arguments["other"]
    return one if isinstance(two, Tensor) and one.shape == two.shape and one.dtype == two.dtype else None


def mean(arguments: Mapping[str, Any]) -> Tensor | None:
    tensor, dims = arguments["self"], arguments.get("dim")
    if not dims or arguments.get("dtype") is not None or not tensor.is_floating_point():
        return None
    reduced_dims = {dim % tensor.dim() for dim in ([dims] if isinstance(dims, int) else dims)}
    keep = bool(arguments.get("keepdim"))
    reduced: Tensor = tensor.new_empty(
        [1 if at in reduced_dims else n for at, n in enumerate(tensor.shape) if keep or at not in reduced_dims]
    )
    return reduced


def addmm(arguments: Mapping[str, Any]) -> Tensor:
    one, two = arguments["mat1"], arguments["mat2"]
    if one.shape[1] != two.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({tuple(one.shape)} and {tuple(two.shape)})")
    if one.dtype != two.dtype:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {one.dtype} and {two.dtype}")
    shape = torch.broadcast_shapes(arguments["self"].shape, (one.shape[0], two.shape[1]))  # type: ignore[no-untyped-call]
    product: Tensor = one.new_empty(shape)
    return product


def grouped_product(arguments: Mapping[str, Any]) -> Tensor | None:
    """Torch knows the shape only in half precision. On a real device it wants strides that are full 16 bytes."""
    rows, weight = arguments["self"], arguments["mat2"]
    if rows.dim() != 2 or weight.dim() != 3 or rows.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return None
    if rows.shape[1] != weight.shape[1]:
        raise RuntimeError(f"rows of {rows.shape[1]} cannot be multiplied with matrices of {weight.shape[1]} rows")
    full = 16 // rows.element_size()
    if rows.stride(0) % full or weight.stride(-1 if weight.stride(-2) == 1 else -2) % full:
        raise RuntimeError("strides should be multiple of 16 bytes")
    padded = -(-weight.shape[2] // full) * full
    product: Tensor = rows.new_empty((rows.shape[0], padded))[:, : weight.shape[2]]
    return product


def like_self(arguments: Mapping[str, Any]) -> Tensor:
    return torch.empty_like(arguments["self"])


def like_floating_self(arguments: Mapping[str, Any]) -> Tensor | None:
    tensor: Tensor = arguments["self"]
    return torch.empty_like(tensor) if tensor.is_floating_point() else None


def self_in_place(arguments: Mapping[str, Any]) -> Tensor:
    tensor: Tensor = arguments["self"]
    return tensor
