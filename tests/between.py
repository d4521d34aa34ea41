"""Two layers with something between them: what it makes of the units, by itself or by mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import meristem
from helpers import assert_is_masked_reference, go, random_target

X = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))


class Between(nn.Module):
    """``between`` changes what two layers pass on, eight units at most; its second argument is their number."""

    def __init__(self, between: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.one, self.two, self.between = nn.Linear(5, 8), nn.Linear(8, 2), between

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        return self.two(self.between(x, x.size(1)))


class WithRealNumbers(Between):
    """The same, with a branch that the meta device cannot take."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 1 if x.sum() > 1000 else x)


def pinned(model: nn.Module) -> str:
    """Why the units between the layers are pinned; nothing if they are free."""
    space = meristem.trace(model, X)
    assert space.full in ({}, {"one": 8})
    return "" if space.full else " ".join(pin.reason for pin in space.pinned if "one" in str(pin))


def assert_free_and_exact(model: nn.Module, inputs: tuple[Tensor, ...] = (X,)) -> None:
    """Law 4: with any units taken out, the live network computes what the masked one does."""
    torch.manual_seed(0)
    model, inputs = model.double().eval(), tuple(value.double() for value in inputs)
    space = meristem.trace(model, inputs)
    assert space.groups
    full, live = copy.deepcopy(model), meristem.Live(model, space)
    for seed in range(3):
        go(live, random_target(space, np.random.default_rng(seed)))
        assert_is_masked_reference(live, full, inputs)


def assert_pinned_or_exact(model: nn.Module) -> None:
    """Nothing is wrong in silence, whatever is free."""
    if meristem.trace(model, X).full:
        assert_free_and_exact(model)
