"""Constants that a model makes on another device join a run on the meta device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from meristem.tracing.operation import Signature


class MetaConstants:
    """Replaces tensors with numbers, in the arguments of operations, by tensors on the meta device.

    ``numbers`` is called with what each of them holds, one that comes from numpy say: on the meta device nothing is
    left of it.
    """

    def __init__(self, numbers: Callable[[tuple[float | str, ...]], None]) -> None:
        self._numbers = numbers
        self._on_meta: dict[int, tuple[Tensor, Tensor]] = {}  # by the id of the original, which is kept alive

    def arguments(self, called: Signature, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments of a call on the meta device."""
        if "device" in kwargs or (called.takes_device and not any(isinstance(value, (Tensor, list)) for value in args)):
            kwargs["device"] = torch.device("meta")
        if kwargs.get("generator") is not None:
            kwargs["generator"] = None  # it belongs to another device
        if kwargs:
            kwargs = {key: self._to_meta(value) for key, value in kwargs.items()}
        return [self._to_meta(value) for value in args], kwargs

    def _to_meta(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value if value.is_meta else self._copy_of(value)
        if isinstance(value, (list, tuple)) and any(isinstance(item, (Tensor, list, tuple)) for item in value):
            return [self._to_meta(item) for item in value]
        return value

    def _copy_of(self, value: Tensor) -> Tensor:
        if id(value) not in self._on_meta:
            self._on_meta[id(value)] = (value, torch.empty_like(value, device="meta"))
            self._numbers((value.item(),) if value.numel() == 1 else (str(list(value.shape)), _digest(value)))
        return self._on_meta[id(value)][1]


def _digest(value: Tensor) -> str:
    """A short text that differs where any of the numbers does; of an unusual kind of tensor it tells the kind."""
    if value.layout != torch.strided or value.is_quantized or value.is_nested:
        return f"{value.layout} {value.dtype}"
    contents = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(contents.numpy().tobytes(), digest_size=8).hexdigest()
