"""The time left over a whole table: by arm where it is known, by all runs where it is not, shared among jobs."""

from __future__ import annotations

from meristem_bench.studies.table_progress import TableProgress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_told_before_a_run_has_ended() -> None:
    progress = TableProgress(["a", "b"], now=Clock())
    progress.begin("a")
    assert progress.seconds_left is None
    assert str(progress) == "0 of 2 runs done"


def test_runs_are_as_long_as_others_of_their_arm() -> None:
    clock = Clock()
    progress = TableProgress(["a", "b", "a", "b"], now=clock)
    for arm, seconds in (("a", 10.0), ("b", 100.0)):
        progress.begin(arm)
        clock.now += seconds
        progress.end(arm)
    assert progress.seconds_left == 110.0
    progress.begin("a")
    clock.now += 4
    assert progress.seconds_left == 106.0
    assert str(progress) == "2 of 4 runs done, about 1:46 left"


def test_an_arm_that_nobody_has_run_takes_as_long_as_the_mean() -> None:
    progress = TableProgress(["new"], known=[("a", 10.0), ("b", 30.0)], now=Clock())
    assert progress.seconds_left == 20.0


def test_a_run_that_fails_says_nothing_about_others() -> None:
    clock = Clock()
    progress = TableProgress(["a", "a", "a"], known=[("a", 50.0)], now=clock)
    progress.begin("a")
    clock.now += 1
    progress.end("a", failed=True)
    assert progress.seconds_left == 100.0
    assert str(progress) == "1 of 3 runs done, about 1:40 left"


def test_jobs_share_what_is_left() -> None:
    progress = TableProgress(["a"] * 4, known=[("a", 30.0)], jobs=2, now=Clock())
    assert progress.seconds_left == 60.0
    for _ in range(3):
        progress.end("a")
    assert progress.seconds_left == 30.0  # one run cannot be shared
