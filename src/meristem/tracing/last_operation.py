"""The dimensions at hand when the model's own code raises: those of the last operation that was executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from meristem.tracing.behaviour import Token
from meristem.tracing.operation import flat
from meristem.tracing.ops.context import Dims
from meristem.tracing.tensor_dims import TensorDims


class LastOperation:
    """The arguments and results of an operation, or the token of their dimensions where a layer was taken over."""

    def __init__(self, tensor_dims: TensorDims) -> None:
        self._tensor_dims = tensor_dims
        self.values: Sequence[Any] = ()
        self._token: Token | None = None

    def executed(self, values: Sequence[Any]) -> None:
        self.values, self._token = values, None

    def taken_over(self, token: Token) -> None:
        self.values, self._token = (), token

    def token(self) -> Token | None:
        """The token of all these tensors, one after the other; None if one of them has none."""
        if self._token is not None:
            return self._token
        tokens = [self._tensor_dims.token(value) for value in flat([*self.values]) if isinstance(value, Tensor)]
        return None if None in tokens else tuple(dim for token in tokens if token is not None for dim in token)

    def dims(self) -> Dims:
        """The dimensions of all tensors among the arguments and results."""
        if self._token is not None:
            return self._tensor_dims.left(self._token)
        return self._tensor_dims.of_all(flat([*self.values]))
