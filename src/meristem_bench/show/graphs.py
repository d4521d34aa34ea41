"""Graphs of a run: everything its records hold, a point per epoch, written while it runs to where one looks at them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from meristem.grower import Grower
from meristem.history import Record
from meristem.scalars import scalars
from meristem.space.space import Space
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import run_to_end
from meristem_bench.runs.observers import RunObserver, RunObservers
from meristem_bench.runs.result import Result, finished_result
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import build


class GraphWriter(Protocol):
    """Takes the points of one run to where they are looked at."""

    def begin(self, run: Run, folder: Folder) -> int:
        """Begin the graphs of the run, or go on with them.

        Returns the last epoch whose points are there already: those up to it are not written again. A killed run may
        have written more epochs than it can go on from; it comes to the same points again.
        """
        ...

    def write(self, points: Mapping[str, float], epoch: int, moment: float) -> None:
        """The points of an epoch that ended at a moment (seconds since 1970); they stay, whatever happens next."""
        ...

    def close(self, finished: bool) -> None:
        """Nothing more is written now; the run may have been stopped."""
        ...


class Graphs:
    """Observes a run and gives its numbers to writers."""

    def __init__(self, folder: Folder, writers: Collection[GraphWriter]) -> None:
        self._folder, self._writers = folder, tuple(writers)
        self._written: dict[GraphWriter, int] = {}
        self._space: Space | None = None
        self._budget: dict[str, float] = {}

    def start(self, run: Run, grower: Grower) -> None:
        """Write all records so far that a writer does not have."""
        for writer in self._writers:
            self._written[writer] = writer.begin(run, self._folder)
        self._space, self._budget = grower.space, budget_scalars(grower)
        moment = time.time() - sum(record["seconds"] for record in grower.records)
        for record in grower.records:
            moment += record["seconds"]
            self._write(record, moment)

    def note(self, text: str) -> None:
        """Write nothing: notes are for the one who starts the run."""

    def batch(self, step: int, steps: int) -> None:
        """Write nothing: graphs have a point per epoch."""

    def epoch(self, record: Record) -> None:
        self._write(record, time.time())

    def close(self, finished: bool) -> None:
        for writer in self._written:
            writer.close(finished)

    def _write(self, record: Record, moment: float) -> None:
        assert self._space is not None
        points = {**scalars(record, self._space), **self._budget}
        for writer, written in self._written.items():
            if record["epoch"] > written:
                writer.write(points, record["epoch"], moment)


def run_with_graphs(run: Run, folder: Folder, observer: RunObserver, writers: Sequence[GraphWriter]) -> Result:
    """`run_to_end` that also writes graphs. A finished run is not run again, but its graphs are written."""
    graphs, finished = Graphs(folder, writers), False
    try:
        result = finished_result(folder)
        if result is None:
            result = run_to_end(run, folder, RunObservers((graphs, observer)))
        elif writers:
            training = build(run, history=None)
            training.resume(folder.checkpoint)
            graphs.start(run, training.grower)
        finished = True
    finally:
        graphs.close(finished)
    return result


def budget_scalars(grower: Grower) -> dict[str, float]:
    """The budget of the run: a constant line in the graphs."""
    caps = {f"cost/{name}_budget": cap for name, cap in grower.trajectory.caps.items()}
    spend = grower.budget.spend_share
    return caps if spend is None else {**caps, "spend/budget": spend}
