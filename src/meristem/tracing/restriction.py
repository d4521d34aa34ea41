"""What is left of the full model's dimensions in a reduced one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from meristem.tracing.behaviour import Behaviour, Token
from meristem.tracing.labels import Dim
from meristem.tracing.observations import TensorDim
from meristem.tracing.ops.context import Dims


class Restriction:
    """Dimensions and tensors of one model by the token that they have.

    ``left`` is what is left of a dimension of the full model; without it, that is all of it. ``owned`` are the
    full model's own dimensions.
    """

    def __init__(
        self, behaviour: Behaviour, owned: Mapping[TensorDim, Dim], left: Callable[[Dim], Dim] | None = None
    ) -> None:
        self.behaviour, self.reduces = behaviour, left is not None
        self._owned, self._left = owned, left or _all
        self._patterns: dict[tuple[Token, torch.dtype], Tensor] = {}
        self._tokens: dict[str, Token] = {}

    def dims(self, token: Token) -> Dims:
        return [self._left(dim) for dim in token]

    def shape(self, token: Token) -> list[int]:
        return [self._left(dim).size for dim in token]

    def empty(self, token: Token, dtype: torch.dtype) -> Tensor:
        """A new tensor on the meta device, row after row in memory."""
        pattern = self._patterns.get((token, dtype))
        if pattern is None:
            pattern = torch.empty(self.shape(token), dtype=dtype, device="meta")
            self._patterns[token, dtype] = pattern
        return pattern.clone()  # in a third of the time of ``torch.empty``

    def of_model(self, name: str, rank: int) -> Token | None:
        """The token of a tensor of the model, if the full model has used it."""
        token = self._tokens.get(name)
        if token is None:
            owned = [self._owned.get((name, dim)) for dim in range(rank)]
            labelled = [dim for dim in owned if dim is not None]
            token = self.behaviour.token(labelled) if len(labelled) == rank else None
            if token is not None:
                self._tokens[name] = token
        return token


def _all(dim: Dim) -> Dim:
    return dim
