"""Copies of modules: what ``copy.deepcopy`` makes of them, made faster."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from deep import ALL_NETS
from meristem.tracing.deep_copy import deep_copy


class Holding(nn.Module):
    """Attributes of many kinds, shared and cyclic ones among them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 3)
        self.again = self.inner
        self.shared = {"list": [1, [2, self.inner.weight]], "cycle": self.inner}
        self.alias = self.shared
        self.parent_of = [self]
        self.sizes = (1, (2, 3))
        self.names = {"a", "b"}
        self.bound = self.inner.extra_repr
        self.inner.register_forward_hook(self.seen)
        self.kept = torch.zeros(2)

    def seen(self, module: nn.Module, args: Any, output: Tensor) -> None:
        self.last = output

    def forward(self, x: Tensor) -> Tensor:
        return self.again(x)


class SaysHow(nn.Linear):
    """A layer with a protocol of its own for copies."""

    def __deepcopy__(self, memo: dict[int, Any]) -> SaysHow:
        new = SaysHow(self.in_features, self.out_features)
        new.came_from_here = True
        return new


def test_every_reference_is_to_the_copy() -> None:
    """Shared objects stay shared, cycles closed, and nothing of the original is left in the copy."""
    model = Holding()
    new = deep_copy(model, {})
    assert new.inner is new.again
    assert new.inner is not model.inner
    assert new.alias is new.shared
    assert new.shared is not model.shared
    assert new.shared["cycle"] is new.inner
    assert new.shared["list"][1][1] is new.inner.weight
    assert new.parent_of[0] is new
    assert new.bound.__self__ is new.inner
    assert new.sizes == model.sizes
    assert new.names == model.names
    assert new.names is not model.names
    assert new.kept is not model.kept
    new(torch.randn(1, 2))
    assert hasattr(new, "last")
    assert not hasattr(model, "last")


def test_a_layer_that_says_how_it_is_copied_is_asked() -> None:
    new = deep_copy(nn.Sequential(SaysHow(2, 3), nn.ReLU()), {})
    assert new[0].came_from_here


@pytest.mark.parametrize("name", ALL_NETS)
def test_copies_have_the_attributes_that_torch_gives_them(name: str) -> None:
    model, _ = ALL_NETS[name].build()
    ours, theirs = deep_copy(model, {}), copy.deepcopy(model)
    for one, two in zip(ours.modules(), theirs.modules(), strict=True):
        assert type(one) is type(two)
        assert list(vars(one)) == list(vars(two))
    for (key, mine), (_, other) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert torch.equal(mine, other), key
