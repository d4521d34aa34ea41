"""How far a whole table is: which run of how many, and how long the others will take."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from meristem_bench.show.formatting import clock


class TableProgress:
    """Told when runs begin and end. Runs of an arm are taken to be as long as its others, or else as all were so far.

    ``known`` are the seconds of runs that were there before, by arm.
    """

    def __init__(
        self,
        arms: Sequence[str],
        known: Sequence[tuple[str, float]] = (),
        jobs: int = 1,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._left, self._all, self._jobs, self._now = list(arms), len(arms), max(1, jobs), now
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._begun: list[tuple[str, float]] = []
        for arm, seconds in known:
            self._seconds[arm].append(seconds)

    def begin(self, arm: str) -> None:
        self._begun.append((arm, self._now()))

    def end(self, arm: str, failed: bool = False) -> None:
        """A run is over; one that failed says nothing about how long others take."""
        if arm in self._left:
            self._left.remove(arm)
        begun = next((each for each in self._begun if each[0] == arm), None)
        if begun is None:
            return
        self._begun.remove(begun)
        if not failed:
            self._seconds[arm].append(self._now() - begun[1])

    @property
    def seconds_left(self) -> float | None:
        """Of the whole table; None while nothing has ended from which it could be told."""
        measured = [seconds for of_arm in self._seconds.values() for seconds in of_arm]
        if not measured:
            return None
        typical = statistics.mean(measured)
        expected = [statistics.mean(self._seconds[arm]) if self._seconds.get(arm) else typical for arm in self._left]
        passed = sum(
            min(self._now() - begun, statistics.mean(self._seconds[arm]) if self._seconds.get(arm) else typical)
            for arm, begun in self._begun
        )
        return max(0.0, sum(expected) - passed) / min(self._jobs, max(1, len(self._left)))

    def __str__(self) -> str:
        done = f"{self._all - len(self._left)} of {self._all} runs done"
        left = self.seconds_left
        return done if left is None or not self._left else f"{done}, about {clock(left)} left"
