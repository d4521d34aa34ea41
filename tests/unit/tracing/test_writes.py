"""Tensors that are written in place: what is written through a view is in its base, and in all its other views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from between import Between, WithRealNumbers, assert_free_and_exact, assert_pinned_or_exact, pinned


def flagged(n: int, write: Callable[[Tensor], object], start: float = 1.0) -> Tensor:
    """A vector of constants into which something has been written."""
    vector = torch.full((n,), start)
    write(vector)
    return vector


def set_item(index: object, value: object) -> Callable[[Tensor], None]:
    def write(vector: Tensor) -> None:
        vector[index] = value  # type: ignore[index]

    return write


def positions(n: int) -> Tensor:
    """Sine and cosine in turn, as in positional encodings."""
    angles = torch.arange(5)[:, None] * torch.exp(torch.arange(0, 8, 2) * -0.5)
    encoding = torch.zeros(5, n)
    encoding[:, 0::2] = torch.sin(angles)[:, : (n + 1) // 2]
    encoding[:, 1::2] = torch.cos(angles)[:, : n // 2]
    return encoding[:3]


BY_POSITION: dict[str, Callable[[Tensor, int], Tensor]] = {
    "one position": lambda x, n: x * flagged(n, set_item(0, 0.0)),
    "a slice": lambda x, n: x * flagged(n, set_item(slice(0, n // 2), 0.0)),
    "every other position": lambda x, n: x * flagged(n, set_item(slice(None, None, 2), -1.0)),
    "by a mask": lambda x, n: x * flagged(n, lambda v: v.masked_fill_(torch.arange(n) < 3, 0.0)),
    "a narrow view": lambda x, n: x * flagged(n, lambda v: v.narrow(0, 0, 2).zero_()),
    "through a reshaped view": lambda x, n: x * flagged(n, lambda v: v.view(1, n)[:, 0].fill_(3.0)),
    "element by element": lambda x, n: x * flagged(n, lambda v: v[:3].mul_(2.0)),
    "all of it, by position": lambda x, n: x * flagged(n, lambda v: v.view(1, n).add_(torch.arange(n))),
    "by a tensor of positions": lambda x, n: x * flagged(n, set_item(torch.tensor([0, 2]), 0.0)),
    "many at once": lambda x, n: x * flagged(n, lambda v: torch._foreach_mul_([v[:2]], 2.0)),
    "as the output of an operation": lambda x, n: x * flagged(n, lambda v: torch.add(v[:2], 1, out=v[:2])),
    "into a row of several": lambda x, n: x * _two_rows(n)[1],
    "a positional encoding": lambda x, n: x + positions(n),
    "a view made before": lambda x, n: x * _seen_through_a_view(n),
}


def _two_rows(n: int) -> Tensor:
    rows = torch.ones(2, n)
    rows[1, 3] = 0
    return rows


def _seen_through_a_view(n: int) -> Tensor:
    base = torch.ones(n)
    seen = base[None]
    base[1] = 0
    return seen


@pytest.mark.parametrize("name", BY_POSITION)
@pytest.mark.parametrize("kind", [Between, WithRealNumbers])
def test_a_write_into_a_part_tells_positions_apart(name: str, kind: type[Between]) -> None:
    assert pinned(kind(BY_POSITION[name]))


def _filled_view(n: int) -> Tensor:
    vector = torch.ones(2, n)
    vector[0] = 3.0
    vector[1, :] = 0.5
    return vector.sum(0)


def _buffer(x: Tensor, n: int) -> Tensor:
    """Units written into zeros of their own size."""
    room = x.new_zeros(len(x), n)
    room[:] = x
    return room


def _row_by_row(x: Tensor, n: int) -> Tensor:
    room = x.new_zeros(len(x), n)
    for row in range(len(x)):
        room[row] = 2 * x[row]
    return room


ALIKE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "whole rows": lambda x, n: x * _filled_view(n),
    "all of it through a view": lambda x, n: x * flagged(n, lambda v: v.view(1, n).mul_(3.0)),
    "all of it at once": lambda x, n: x * flagged(n, lambda v: v.fill_(0.25)),
    "units into zeros": _buffer,
    "units row by row": _row_by_row,
}


@pytest.mark.parametrize("name", ALIKE)
def test_a_write_that_treats_all_units_alike_leaves_them_free(name: str) -> None:
    assert_free_and_exact(Between(ALIKE[name]))


def test_units_written_into_a_part_stay() -> None:
    """Where they come to lie is a number in the code."""

    def beside(x: Tensor, n: int) -> Tensor:
        room = x.new_zeros(len(x), 2 * n)
        room[:, :n] = x
        room[:, n:].copy_(x)
        return room[:, :n] + room[:, n:]

    assert_pinned_or_exact(Between(beside))
