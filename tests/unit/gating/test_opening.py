"""How far blocks that have just come in are open."""

from __future__ import annotations

import pytest
import torch

from meristem.gating.opening import Opening

CPU = torch.device("cpu")


def test_from_shut_to_open_in_so_many_epochs() -> None:
    opening = Opening(2.0)
    opening.begin({"new": 0.0, "older": 1.0, "old": 2.0}, CPU)
    assert [opening.value(group) for group in ("new", "older")] == [0.0, 0.5]
    assert opening.value("old") is None, "it is open, so nothing stands in its way"
    opening.step(0.5)
    assert [opening.value(group) for group in ("new", "older")] == [0.25, 0.75]
    opening.step(1.0)
    assert [opening.value(group) for group in ("new", "older")] == [0.5, 1.0]


def test_a_gate_is_one_tensor_for_the_whole_epoch() -> None:
    """A compiled model has read it once."""
    opening = Opening(1.0)
    opening.begin({"new": 0.0}, CPU)
    before = opening.value("new")
    opening.step(0.5)
    assert opening.value("new") is before


def test_taken_up_in_the_middle_of_an_epoch() -> None:
    opening = Opening(1.0)
    opening.begin({"new": 0.0}, CPU, share=0.25)
    assert opening.value("new") == 0.25


def test_an_epoch_that_is_longer_than_the_last_one_opens_no_further() -> None:
    opening = Opening(0.5)
    opening.begin({"new": 0.0}, CPU)
    opening.step(0.75)
    assert opening.value("new") == 1.0


def test_what_was_there_at_the_start_is_open() -> None:
    """Also when it has lived for less than it takes to open: it went, and is restored."""
    opening = Opening(3.0, first={"first"})
    opening.begin({"first": 1.0, "new": 0.0}, CPU)
    assert opening.value("first") is None
    assert opening.value("new") == 0.0


def test_shut_is_what_has_not_begun_to_open() -> None:
    opening = Opening(2.0)
    opening.begin({"new": 0.0, "older": 1.0}, CPU)
    assert opening.shut == {"new"}
    opening.step(0.5)
    assert not opening.shut


@pytest.mark.parametrize("ages", [{}, {"new": 0.0}])
def test_open_at_once(ages: dict[str, float]) -> None:
    opening = Opening(0.0)
    opening.begin(ages, CPU)
    assert opening.done
    assert opening.value("new") is None
