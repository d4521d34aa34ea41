"""Constants that a model makes on another device join a run on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class MetaConstants:
    """Replaces tensors with numbers, in the arguments of operations, by tensors on the meta device.

    ``single_number`` is called with each number in the form of a tensor, from numpy say: on the meta device nothing is
    left of it.
    """

    def __init__(self, single_number: Callable[[float], None]) -> None:
        self._single_number = single_number
        self._on_meta: dict[int, tuple[Tensor, Tensor]] = {}  # by the id of the original, which is kept alive

    def arguments(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments of a call on the meta device."""
        if "device" in kwargs or (
            not any(isinstance(value, (Tensor, list)) for value in args)
            and any(argument.name == "device" for argument in func._schema.arguments)
        ):
            kwargs["device"] = torch.device("meta")
        return [self._to_meta(value) for value in args], {key: self._to_meta(kwargs[key]) for key in kwargs}

    def _to_meta(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._to_meta(item) for item in value]
        if not isinstance(value, Tensor) or value.is_meta:
            return value
        if id(value) not in self._on_meta:
            self._on_meta[id(value)] = (value, torch.empty_like(value, device="meta"))
            if value.numel() == 1:
                self._single_number(value.item())
        return self._on_meta[id(value)][1]
