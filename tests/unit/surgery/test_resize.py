"""Sub-grids: taking, putting, and the round trip through a full-size home."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.surgery.resize import leaving, put, resized, take
from meristem.surgery.store import Store

SHAPE = (4, 3, 5)


def in_one_part(name: str) -> list[list[int]]:
    return [[0] for _ in SHAPE]


@st.composite
def positions(draw: st.DrawFn) -> list[np.ndarray]:
    return [np.array(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1)))) for size in SHAPE]


def numbered(shift: int = 0) -> torch.Tensor:
    return torch.arange(60).view(SHAPE) + shift


@settings(max_examples=60)
@given(at=positions())
def test_take_is_a_sub_grid_and_put_writes_it_back(at: list[np.ndarray]) -> None:
    assert torch.equal(take(numbered(), at), numbered()[np.ix_(*at)])
    target = numbered()
    put(target, at, take(numbered(1000), at))
    expected = numbered()
    expected[np.ix_(*at)] += 1000
    assert torch.equal(target, expected)


@settings(max_examples=60)
@given(old=positions(), new=positions())
def test_resized(old: list[np.ndarray], new: list[np.ndarray]) -> None:
    """What stays comes from the current tensor, what comes in from the home, and nothing is changed in place."""
    home, current = numbered(), numbered(1000)[np.ix_(*old)]
    before = current.clone()
    stayed = torch.zeros(SHAPE, dtype=torch.bool)
    stayed[np.ix_(*old)] = True
    expected = torch.where(stayed, numbered(1000), numbered())[np.ix_(*new)]
    made = resized(current, home, old, new)
    assert torch.equal(made, expected)
    assert made.data_ptr() not in (current.data_ptr(), home.data_ptr())
    assert torch.equal(current, before)
    assert torch.equal(home, numbered())


@settings(max_examples=60)
@given(old=positions(), new=positions())
def test_leaving_covers_exactly_what_goes(old: list[np.ndarray], new: list[np.ndarray]) -> None:
    was, stays, gone = (torch.zeros(SHAPE, dtype=torch.bool) for _ in range(3))
    was[np.ix_(*old)] = True
    stays[np.ix_(*new)] = True
    for part in leaving(old, new):
        gone[np.ix_(*part)] = True
    assert torch.equal(gone, was & ~stays)


@settings(max_examples=30)
@given(trip=st.lists(positions(), min_size=1, max_size=4))
def test_store_remembers_the_last_value_that_lived(trip: list[list[np.ndarray]]) -> None:
    """A place holds the initial value until something has lived there, then what lived there last."""
    store, full = Store(in_one_part), [np.arange(size) for size in SHAPE]
    store.adopt("w", numbered())
    model, at, current = numbered(), full, numbered()
    for new in [*trip, full]:
        current = current + 100  # everything live is trained
        model[np.ix_(*at)] += 100
        current, at = store.exchange("w", current, at, new), new
    assert torch.equal(current, model)


def test_state_that_never_lived_is_filled() -> None:
    store = Store(in_one_part)
    store.adopt("w", torch.zeros(3))
    grown = store.exchange_state("w", "m", torch.tensor([5.0]), [np.array([1])], [np.arange(3)], 7.0)
    assert grown.tolist() == [7.0, 5.0, 7.0]
    shrunk = store.exchange_state("w", "m", torch.tensor([1.0, 2.0, 3.0]), [np.arange(3)], [np.array([0])], 7.0)
    assert shrunk.tolist() == [1.0]
    back = store.exchange_state("w", "m", torch.tensor([9.0]), [np.array([0])], [np.arange(3)], 7.0)
    assert back.tolist() == [9.0, 2.0, 3.0]


def test_a_diverged_moment_is_not_repaired() -> None:
    """NaN in live state is the user's to see: only places that never lived are filled."""
    store = Store(in_one_part)
    store.adopt("w", torch.zeros(3))
    grown = store.exchange_state("w", "m", torch.tensor([torch.nan]), [np.array([1])], [np.arange(3)], 0.0)
    assert grown.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_home_keeps_the_dtype(dtype: torch.dtype) -> None:
    store = Store(in_one_part)
    store.adopt("w", torch.ones(3, dtype=dtype))
    assert store.full_copy("w").dtype == dtype
    assert store.exchange("w", torch.zeros(1, dtype=dtype), [np.array([0])], [np.arange(3)]).dtype == dtype
