"""Axes: which positions are live, and how many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.space.axis import Axis, Part


def mask(*live: int) -> np.ndarray:
    return np.array(live, dtype=np.bool_)


def test_no_units() -> None:
    axis = Axis(4)
    assert axis.live({}).all()
    assert axis.count({}) == 4
    assert axis.groups == ()
    assert not axis.owned().any()
    assert str(axis) == "4"


def test_concatenation_of_two_groups_and_fixed_positions() -> None:
    """cat([a, fixed, b]): each part owns only its own positions."""
    axis = Axis(6, (Part("a", np.array([0, 1, -1, -1, -1, -1])), Part("b", np.array([-1, -1, -1, 0, 1, 2]))))
    live = axis.live({"a": mask(0, 1), "b": mask(1, 0, 0)})
    assert live.tolist() == [False, True, True, True, False, False]
    assert axis.count({"a": 1, "b": 1}) == live.sum()
    assert axis.count({"a": 0.5, "b": 2.5}) == 4
    assert axis.owned().tolist() == [True, True, False, True, True, True]
    assert axis.groups == ("a", "b")
    assert str(axis) == "1 + 1 x b + 1 x a"


def test_the_same_group_twice_along_one_axis() -> None:
    """cat([x, f(x)]) where both halves belong to one group: a unit owns two positions."""
    axis = Axis(6, (Part("a", np.array([0, 1, 2, 0, 1, 2])),))
    assert axis.live({"a": mask(1, 0, 1)}).tolist() == [True, False, True, True, False, True]
    assert axis.count({"a": 2}) == 4
    assert str(axis) == "2 x a"


def test_two_factors() -> None:
    """Heads times head dimensions: a position needs both of its owners."""
    heads, dims = np.repeat(np.arange(3), 2), np.tile(np.arange(2), 3)
    axis = Axis(6, (Part("heads", heads), Part("dims", dims)))
    assert axis.live({"heads": mask(1, 0, 1), "dims": mask(0, 1)}).tolist() == [False, True, False, False, False, True]
    assert axis.count({"heads": 2, "dims": 1}) == 2
    assert axis.count({"heads": 1.5, "dims": 1.5}) == 2.25


def test_two_factors_beside_a_concatenated_group() -> None:
    axis = Axis(
        7,
        (
            Part("heads", np.array([0, 0, 1, 1, -1, -1, -1])),
            Part("dims", np.array([0, 1, 0, 1, -1, -1, -1])),
            Part("tail", np.array([-1, -1, -1, -1, 0, 1, -1])),
        ),
    )
    masks = {"heads": mask(1, 0), "dims": mask(1, 1), "tail": mask(0, 1)}
    assert axis.live(masks).sum() == axis.count({"heads": 1, "dims": 2, "tail": 1}) == 4


@given(st.data())
def test_count_is_the_number_of_live_positions(data: st.DataObject) -> None:
    """The closed form needs only how many units live, not which."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=2), label="factors")
    times = data.draw(st.integers(1, 3), label="repeats")
    rows = np.repeat(np.repeat(np.arange(sizes[0]), sizes[1]), times)
    columns = np.repeat(np.tile(np.arange(sizes[1]), sizes[0]), times)
    axis = Axis(len(rows) + 1, tuple(Part(n, np.append(u, -1)) for n, u in (("r", rows), ("c", columns))))
    masks = {
        name: np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=np.bool_)
        for name, size in zip("rc", sizes, strict=True)
    }
    assert axis.live(masks).sum() == axis.count({name: int(found.sum()) for name, found in masks.items()})


def test_an_unknown_group_is_not_ignored() -> None:
    with pytest.raises(KeyError):
        Axis(2, (Part("a", np.array([0, 1])),)).count({"b": 1})
