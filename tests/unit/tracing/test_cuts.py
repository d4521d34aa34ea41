"""What is cut out of a dimension by position is told from what follows the units, however the widths fall."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import meristem
from between import Between, assert_pinned_or_exact
from helpers import assert_all_near, go, run
from meristem.testing import masked_reference


def changed(x: Tensor, change: Callable[[Tensor], object]) -> Tensor:
    """A copy of ``x`` that has been written to."""
    x = x.clone()
    change(x)
    return x


def seen_through_a_view(x: Tensor) -> Tensor:
    """A view of the first two units, taken before they are written to."""
    x = x.clone()
    first = x[:, :2]
    x.mul_(2)
    return x * first.mean(1, keepdim=True)


CUTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "the first two, all of two": lambda x, n: changed(x, lambda y: y[:, :2].zero_()),
    "the last two, all of two": lambda x, n: changed(x, lambda y: y[:, -2:].zero_()),
    "all but one": lambda x, n: changed(x, lambda y: y[:, :7].zero_()),
    "the first half": lambda x, n: changed(x, lambda y: y[:, : n // 2].neg_()),
    "the second half": lambda x, n: changed(x, lambda y: y[:, n // 2 :].neg_()),
    "the first quarter": lambda x, n: changed(x, lambda y: y[:, : n // 4].neg_()),
    "a view of the first two": lambda x, n: seen_through_a_view(x),
    "rows of the transposed": lambda x, n: changed(x, lambda y: y.transpose(0, 1)[:2].mul_(3)),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_part_by_position(name: str) -> None:
    assert_pinned_or_exact(Between(CUTS[name]))


class Part(nn.Module):
    """A part of a layer's units is read, the rest is not: two groups in one dimension."""

    def __init__(self, units: int, part: slice) -> None:
        super().__init__()
        self.one, self.part = nn.Linear(5, units), part
        self.two = nn.Linear(len(range(*part.indices(units))), 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x)[:, self.part])


class FirstHalf(Part):
    """The same with the first half of however many there are."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        return self.two(x[:, : x.shape[1] // 2])


PARTS: dict[str, Callable[[int], nn.Module]] = {
    "every other": lambda units: Part(units, slice(0, None, 2)),
    "the others": lambda units: Part(units, slice(1, None, 2)),
    "the last two": lambda units: Part(units, slice(-2, None)),
    "the first half": lambda units: FirstHalf(units, slice(0, units // 2)),
}


@pytest.mark.parametrize("units", [4, 6, 8])
@pytest.mark.parametrize("part", PARTS)
def test_two_groups_in_one_dimension(part: str, units: int) -> None:
    """With as few as two units a group, the right ones must not be found by accident: every width is tried."""
    model, inputs = PARTS[part](units).double(), (torch.randn(2, 5, dtype=torch.float64),)
    space = meristem.trace(model, inputs)
    for widths in itertools.product(*(range(g.min_units, g.units + 1) for g in space.groups.values())):
        live = meristem.Live(copy.deepcopy(model), space)
        go(live, {name: range(width) for name, width in zip(space.groups, widths, strict=True)})
        reference = masked_reference(model, space, live.masks, inputs)
        assert_all_near(run(live.model, inputs), reference.outputs, 1e-9)


class Normed(nn.Module):
    """Six channels, normalised in as many groups as the code makes of their number."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        return self.two(F.group_norm(x, 2 if x.shape[1] % 2 == 0 else 1))


def test_parts_that_the_code_counts_itself() -> None:
    """What is left of one of two groups must not be divided into two again."""
    space = meristem.trace(Normed().double(), torch.randn(3, 5, dtype=torch.float64))
    assert "one:2" not in space.full
    assert_pinned_or_exact(Normed())
