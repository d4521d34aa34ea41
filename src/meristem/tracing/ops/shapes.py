"""The results of a few common operations on the meta device, without asking torch.

Torch works these shapes out in Python. That takes most of the time of a trace and, at the first one, imports torch's
compiler. A function returns None where it does not apply; torch is asked then. ``table.py`` says which operation uses
which function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    return like(tensor), tensor.new_empty(saved), tensor.new_empty(saved)


def elementwise_pair(arguments: Mapping[str, Any]) -> Tensor | None:
    """Two tensors of one shape and type, in a memory format that the result shares."""
    one, two = arguments["self"], arguments["other"]
    if not isinstance(two, Tensor) or one.shape != two.shape or one.dtype != two.dtype:
        return None
    if one.stride() == two.stride():
        return like(one)
    if not (_row_major(one) and _row_major(two)):
        return None
    total: Tensor = one.new_empty(one.shape)
    return total


def _row_major(tensor: Tensor) -> bool:
    """Whether strides fall from the first dimension to the last."""
    strides = tensor.stride()
    return all(before >= after for before, after in pairwise(strides))


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor lies in memory as one that was just made: row after row, without gaps."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != expected or not size:
            return False
        expected *= size
    return True


def like(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """What ``torch.empty_like`` returns."""
    if is_plain(tensor):
        return torch.empty(tensor.shape, dtype=dtype or tensor.dtype, device="meta")
    if _without_gaps(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype, device="meta")
    return torch.empty_like(tensor, dtype=dtype)


def _without_gaps(tensor: Tensor) -> bool:
    """Whether a tensor lies in memory without gaps or overlaps, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def broadcast_row_major(tensors: Sequence[Tensor]) -> list[int] | None:
    """The shape in which plain tensors meet; None if they are not plain or do not fit."""
    rank = max(tensor.dim() for tensor in tensors)
    shape = [1] * rank
    for tensor in tensors:
        if not is_plain(tensor):
            return None
        for at, size in enumerate(tensor.shape, start=rank - tensor.dim()):
            if shape[at] == 1:
                shape[at] = size
            elif size not in (1, shape[at]):
                return None
    return shape


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


def addmm(arguments: Mapping[str, Any]) -> Tensor | None:
    one, two, added = arguments["mat1"], arguments["mat2"], arguments["self"]
    if one.shape[1] != two.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({tuple(one.shape)} and {tuple(two.shape)})")
    if one.dtype != two.dtype:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {one.dtype} and {two.dtype}")
    shape = [one.shape[0], two.shape[1]]
    if added.dim() > 2 or any(
        size not in (1, fits) for size, fits in zip(added.shape[::-1], shape[::-1], strict=False)
    ):
        return None
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


def convolution(arguments: Mapping[str, Any]) -> Tensor | None:
    tensor, weight, groups = arguments["input"], arguments["weight"], arguments["groups"]
    places = weight.dim() - 2
    per_place = [arguments[name] for name in ("stride", "padding", "dilation", "output_padding")]
    if tensor.dim() != weight.dim() or any(len(values) not in (1, places) for values in per_place) or groups < 1:
        return None
    stride, padding, dilation, added = (values * places if len(values) == 1 else values for values in per_place)
    turned, channels = arguments["transposed"], tensor.shape[1]
    read = weight.shape[0] if turned else weight.shape[1] * groups
    if not channels or channels != read or weight.shape[0] % groups:
        return None
    shape = [tensor.shape[0], weight.shape[1] * groups if turned else weight.shape[0]]
    for at in range(places):
        size, reach = tensor.shape[at + 2], dilation[at] * (weight.shape[at + 2] - 1)
        if turned:
            shape.append((size - 1) * stride[at] - 2 * padding[at] + reach + added[at] + 1)
        else:
            shape.append((size + 2 * padding[at] - reach - 1) // stride[at] + 1)
    return tensor.new_empty(shape) if min(shape) > 0 else None


def mm(arguments: Mapping[str, Any]) -> Tensor | None:
    one, two = arguments["self"], arguments["mat2"]
    fits = one.dim() == two.dim() == 2 and one.shape[1] == two.shape[0] and one.dtype == two.dtype
    return one.new_empty((one.shape[0], two.shape[1])) if fits else None


def bmm(arguments: Mapping[str, Any]) -> Tensor | None:
    one, two = arguments["self"], arguments["mat2"]
    if not one.dim() == two.dim() == 3 or one.dtype != two.dtype:
        return None
    if one.shape[0] != two.shape[0] or one.shape[2] != two.shape[1]:
        return None
    product: Tensor = one.new_empty((one.shape[0], one.shape[1], two.shape[2]))
    return product


def layer_norm(arguments: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor] | None:
    tensor, shape = arguments["input"], list(arguments["normalized_shape"])
    rest = tensor.dim() - len(shape)
    if not is_plain(tensor) or tensor.dtype is not torch.float32 or list(tensor.shape[rest:]) != shape or not shape:
        return None
    for name in ("weight", "bias"):
        given = arguments[name]
        if given is not None and (list(given.shape) != shape or given.dtype is not tensor.dtype):
            return None
    saved = [*tensor.shape[:rest], *(1 for _ in shape)]
    return tensor.new_empty(tensor.shape), tensor.new_empty(saved), tensor.new_empty(saved)


def softmax(arguments: Mapping[str, Any]) -> Tensor | None:
    tensor: Tensor = arguments["self"]
    plain = is_plain(tensor) and tensor.is_floating_point() and -tensor.dim() <= arguments["dim"] < tensor.dim()
    return like(tensor) if plain and not arguments.get("half_to_float") and not arguments.get("dtype") else None


def clone(arguments: Mapping[str, Any]) -> Tensor | None:
    tensor: Tensor = arguments["self"]
    return like(tensor) if is_plain(tensor) and arguments["memory_format"] in _ROW_MAJOR_FORMATS else None


_ROW_MAJOR_FORMATS = (None, torch.preserve_format, torch.contiguous_format)


def roll(arguments: Mapping[str, Any]) -> Tensor | None:
    tensor: Tensor = arguments["self"]
    fits = len(arguments["shifts"]) == len(arguments["dims"]) and all(
        -tensor.dim() <= dim < tensor.dim() for dim in arguments["dims"]
    )
    return like(tensor) if is_plain(tensor) and fits else None


def cat(arguments: Mapping[str, Any]) -> Tensor | None:
    tensors, dim = arguments["tensors"], arguments["dim"]
    first = tensors[0]
    if not -first.dim() <= dim < first.dim() or not all(is_plain(each) for each in tensors):
        return None
    at = dim % first.dim()
    shape = [*first.shape]
    for each in tensors[1:]:
        if each.dtype != first.dtype or each.dim() != first.dim():
            return None
        if any(one != two for place, (one, two) in enumerate(zip(each.shape, shape, strict=True)) if place != at):
            return None
        shape[at] += each.shape[at]
    joined: Tensor = first.new_empty(shape)
    return joined


def upsample(arguments: Mapping[str, Any]) -> Tensor | None:
    tensor, size = arguments["self"], arguments["output_size"]
    if tensor.dim() != len(size) + 2 or min(size) < 1 or not tensor.is_floating_point():
        return None
    shape = [*tensor.shape[:2], *size]
    if is_plain(tensor):
        return torch.empty(shape, dtype=tensor.dtype, device="meta")
    if len(size) == 2 and min(tensor.shape) > 1 and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.empty(shape, dtype=tensor.dtype, device="meta", memory_format=torch.channels_last)
    return None
