"""Paths and courses: what they pass through, where they end, and that no setting makes them leave the allowed range."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.control.schedule import CostPath, Schedule
from meristem.errors import MeristemError

share = st.floats(1e-3, 1.0)
progress = st.floats(0.0, 1.0)
courses = st.builds(Schedule, progress, progress, st.floats(0.1, 5.0), progress, progress)


def test_path_passes_through_its_points_geometrically() -> None:
    path = CostPath(((0.2, 0.04), (0.6, 0.64), (0.8, 0.16)))
    for at, value in path.points:
        assert path.at(at) == pytest.approx(value)
    assert path.at(0.4) == pytest.approx(math.sqrt(0.04 * 0.64))
    assert path.at(0.7) == pytest.approx(math.sqrt(0.64 * 0.16))
    assert path.at(0.0) == path.at(0.2) == 0.04
    assert path.at(1.0) == path.at(0.9) == 0.16


def test_a_jump() -> None:
    """Two points at one progress: the first counts there, the second right after."""
    path = CostPath(((0.0, 0.1), (0.5, 0.1), (0.5, 0.9)))
    assert path.at(0.5) == pytest.approx(0.1)
    assert path.at(0.5 + 1e-9) == pytest.approx(0.9)
    assert CostPath(((0.0, 0.1), (0.0, 0.9))).at(0.0) == 0.1


@pytest.mark.parametrize(
    "points",
    [
        ((0.0, 0.1), (0.75, 0.8)),
        ((0.0, 0.3),),
        ((0.2, 0.1), (0.5, 0.1), (0.5, 0.9), (0.7, 0.2)),
        ((0.0, 0.1), (0.0, 0.9)),
    ],
    ids=["a ramp", "level", "a jump", "a jump at the start"],
)
def test_the_mean_of_a_path(points: tuple[tuple[float, float], ...]) -> None:
    """It is that of many points in between, over the whole run and over parts of it."""
    path = CostPath(points)
    for start, end in ((0.0, 1.0), (0.1, 0.3), (0.45, 0.6), (0.9, 1.0)):
        dense = [path.at(start + (n + 0.5) / 4000 * (end - start)) for n in range(4000)]
        assert path.mean(start, end) == pytest.approx(sum(dense) / 4000, rel=1e-3)


@settings(max_examples=80)
@given(schedule=courses, smallest=share, budget=share, where=progress)
def test_a_course_stays_in_range(schedule: Schedule, smallest: float, budget: float, where: float) -> None:
    """Never below what can be reached or above the dense cost or the peak; it ends with the budget."""
    smallest = min(smallest, budget)
    path = schedule.path(smallest, budget)
    value = path.at(where)
    assert smallest * (1 - 1e-9) <= value <= min(1.0, budget * max(schedule.peak, 1.0)) * (1 + 1e-9)
    assert path.points[-1][1] == budget
    times = [at for at, _ in path.points]
    assert times == sorted(times)


@settings(max_examples=80)
@given(schedule=courses, smallest=share, budget=share)
def test_a_course_is_level_after_its_landing(schedule: Schedule, smallest: float, budget: float) -> None:
    path = schedule.path(min(smallest, budget), budget)
    if schedule.grow_until <= schedule.hold_until <= schedule.land_at:
        for part in (0.01, 0.5, 1.0):
            after = schedule.land_at + (1.0 - schedule.land_at) * part
            assert path.at(after) == pytest.approx(budget)


def test_a_course_rises_then_falls() -> None:
    """By hand: from a twentieth of the budget of 20 % up to twice of it, held, and down to it."""
    path = Schedule(start=0.05, grow_until=0.2, peak=2.0, hold_until=0.5, land_at=0.7).path(0.001, 0.2)
    seen = [path.at(at) for at in (0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.9)]
    assert seen == pytest.approx([0.01, math.sqrt(0.01 * 0.4), 0.4, 0.4, 0.4, math.sqrt(0.4 * 0.2), 0.2, 0.2])


def test_a_course_without_a_peak_never_stands_above_the_budget() -> None:
    path = Schedule(peak=1.0).path(0.01, 0.3)
    assert max(path.at(n / 100) for n in range(101)) == pytest.approx(0.3)


def test_the_start_is_between_the_smallest_network_and_the_budget() -> None:
    assert Schedule(start=0.0).path(0.1, 0.3).at(0.0) == 0.1
    assert Schedule(start=0.5).path(0.1, 0.3).at(0.0) == pytest.approx(0.15)
    assert Schedule(start=9.0).path(0.1, 0.3).at(0.0) == 0.3


def test_an_infinite_start_is_the_peak() -> None:
    assert Schedule(start=math.inf, peak=2.0).path(0.1, 0.3).at(0.0) == pytest.approx(0.6)
    full = Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=0.8, land_at=0.8).path(0.1, 0.3)
    assert [full.at(0.0), full.at(0.4), full.at(0.8), full.at(0.81)] == [1.0, 1.0, 1.0, 0.3]


@pytest.mark.parametrize(
    "change", [{"start": -1.0}, {"peak": math.nan}, {"grow_until": 1.5}, {"hold_until": -0.1}, {"land_at": 2.0}]
)
def test_a_course_that_makes_no_sense_is_refused(change: dict[str, float]) -> None:
    (name,) = change
    with pytest.raises(MeristemError, match=name):
        Schedule(**change)


# --- stairs -------------------------------------------------------------------------------------------------------


STAIRS = Schedule(stairs=((0.0, 0.12), (0.4, 0.4), (0.65, 1.0)))


def test_stairs_jump_at_their_moments_and_end_at_the_budget() -> None:
    path = STAIRS.path(0.001, 0.5)
    assert [path.at(at) for at in (0.01, 0.39, 0.41, 0.64, 0.66, 1.0)] == pytest.approx(
        [0.06, 0.06, 0.2, 0.2, 0.5, 0.5]
    )
    assert path.mean(0, 1) == pytest.approx(0.06 * 0.4 + 0.2 * 0.25 + 0.5 * 0.35)


def test_no_stair_is_below_the_smallest_network() -> None:
    assert STAIRS.path(0.1, 0.5).at(0.2) == pytest.approx(0.1)


def test_stairs_after_the_freeze_are_taken_at_it() -> None:
    assert STAIRS.before(0.5).path(0.001, 0.5).at(0.51) == pytest.approx(0.5)


def test_slower_stairs_cost_less_and_less() -> None:
    means = [each.path(0.001, 0.5).mean(0, 1) for each in STAIRS.slower(0.75)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(means))
    assert means[-1] < 0.8 * means[0]


@pytest.mark.parametrize(
    "stairs", [((0.1, 0.2), (0.5, 1.0)), ((0.0, 0.2),), ((0.0, 0.5), (0.5, 0.2), (0.6, 1.0)), ((0.0, 0.5), (1.0, 1.0))]
)
def test_what_are_no_stairs(stairs: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(MeristemError, match=r"begin at 0, rise, and end with the whole budget"):
        Schedule(stairs=stairs)
