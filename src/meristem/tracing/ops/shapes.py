"""The shapes of a few operations on the meta device, which torch would work out in Python.

That takes most of the time of a trace and, at the first one, imports torch's compiler. A shortcut returns None where
it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def _batch_norm_shapes(arguments: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    given = arguments["input"]
    channels = given.shape[1]
    for name in ("weight", "bias", "running_mean", "running_var"):
        if arguments.get(name) is not None and len(arguments[name]) != channels:
            raise RuntimeError(f"batch norm: {name} has {len(arguments[name])} channels, the input {channels}")
    saved = channels if arguments.get("training") else 0
    return torch.empty_like(given), given.new_empty(saved), given.new_empty(saved)


def _sum_shape(arguments: Mapping[str, Any]) -> Tensor | None:
    one, two = arguments["self"], arguments["other"]
    if not isinstance(two, Tensor) or one.shape != two.shape or one.dtype != two.dtype:
        return None
    if one.stride() == two.stride():
        return torch.empty_like(one)
    made: Tensor | None = one.new_empty(one.shape) if _row_major(one) and _row_major(two) else None
    return made


def _row_major(tensor: Tensor) -> bool:
    strides = tensor.stride()
    return all(before >= after for before, after in pairwise(strides))


def _sum_in_place(arguments: Mapping[str, Any]) -> Tensor | None:
    one: Tensor = arguments["self"]
    two = arguments["other"]
    return one if isinstance(two, Tensor) and one.shape == two.shape and one.dtype == two.dtype else None


def _mean_shape(arguments: Mapping[str, Any]) -> Tensor | None:
    given, dims = arguments["self"], arguments.get("dim")
    if not dims or arguments.get("dtype") is not None or not given.is_floating_point():
        return None
    gone = {dim % given.dim() for dim in ([dims] if isinstance(dims, int) else dims)}
    keep = bool(arguments.get("keepdim"))
    reduced: Tensor = given.new_empty(
        [1 if at in gone else n for at, n in enumerate(given.shape) if keep or at not in gone]
    )
    return reduced


def _addmm_shape(arguments: Mapping[str, Any]) -> Tensor:
    one, two = arguments["mat1"], arguments["mat2"]
    if one.shape[1] != two.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({tuple(one.shape)} and {tuple(two.shape)})")
    shape = torch.broadcast_shapes(arguments["self"].shape, (one.shape[0], two.shape[1]))  # type: ignore[no-untyped-call]
    made: Tensor = one.new_empty(shape)
    return made


def _same_shape(arguments: Mapping[str, Any]) -> Tensor:
    return torch.empty_like(arguments["self"])


def _same_numbers(arguments: Mapping[str, Any]) -> Tensor | None:
    given: Tensor = arguments["self"]
    return torch.empty_like(given) if given.is_floating_point() else None


def _in_place(arguments: Mapping[str, Any]) -> Tensor:
    given: Tensor = arguments["self"]
    return given


SHORTCUTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "native_batch_norm": _batch_norm_shapes,
    "_native_batch_norm_legit_no_training": _batch_norm_shapes,
    "relu": _same_shape,
    "sigmoid": _same_numbers,
    "tanh": _same_numbers,
    "sigmoid_": _in_place,
    "tanh_": _in_place,
    "add_": _sum_in_place,
    "mul_": _sum_in_place,
    "add": _sum_shape,
    "sub": _sum_shape,
    "mul": _sum_shape,
    "mean": _mean_shape,
    "addmm": _addmm_shape,
}
