"""The progress of a run in a notebook: one output, drawn again in its place."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from meristem_bench.runs.task_metric import metric
from meristem_bench.show.formatting import percent
from meristem_bench.show.progress import ProgressDisplay

if TYPE_CHECKING:
    from meristem.grower import Grower
    from meristem_bench.runs.run import Run

_REDRAW_SECONDS = 0.5  # every picture is sent to the browser and kept with the notebook until the next


class NotebookProgress:
    """Observes a run: where it is, its last numbers, and a bar for the width of every group."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._grower: Grower | None = None
        self._title, self._at, self._numbers, self._metric = "", "", "", metric("")
        self._notes: list[str] = []
        self._drawn_at = 0.0

    def start(self, run: Run, grower: Grower) -> None:
        from IPython.display import display

        self._grower, self._metric = grower, metric(run.task.headline)
        self._title = f"{run.name}: method {run.growth.method}, seed {run.seed}"
        self._at = f"epoch {grower.epoch}/{run.all_epochs}"
        show: Any = display  # without types
        self._handle = show(self, display_id=True)

    def note(self, text: str) -> None:
        self._notes.append(text)
        self._draw()

    def batch(self, step: int, steps: int) -> None:
        if time.perf_counter() - self._drawn_at > _REDRAW_SECONDS:
            assert self._grower is not None
            self._at = f"epoch {self._grower.epoch + 1}/{self._epochs}  step {step}/{steps}"
            self._draw()

    def epoch(self, record: Mapping[str, Any]) -> None:
        value = record["metrics"].get(f"val_{self._metric.name}")
        score = [] if value is None else [f"{self._metric.name} {self._metric.text(value)}"]
        spend, loss = f"spend {percent(record['spend_frac'])}", f"loss {record['metrics']['train_loss']:.3f}"
        self._at, self._numbers = f"epoch {record['epoch']}/{self._epochs}", "  ".join([*score, spend, loss])
        self._draw()

    def end(self) -> None:
        """Nothing: the last picture stays."""

    @property
    def _epochs(self) -> int:
        assert self._grower is not None
        return self._grower.epochs + self._grower.fine_tune

    def _draw(self) -> None:
        if self._handle is not None:
            self._handle.update(self)
            self._drawn_at = time.perf_counter()

    def _repr_html_(self) -> str:
        assert self._grower is not None
        lines = [self._title, *self._notes, f"{self._at}  {self._numbers}".strip()]
        table: str = self._grower._repr_html_()
        return "".join(f"<div>{escape(line)}</div>" for line in lines) + table

    def __repr__(self) -> str:
        return f"{self._title}, {self._at}  {self._numbers}".strip()


def make_progress(plain: bool = False) -> ProgressDisplay | NotebookProgress:
    """What shows a run where this program runs: in the cell of a notebook, or on the standard output."""
    return NotebookProgress() if in_notebook() and not plain else ProgressDisplay(sys.stdout, plain)


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this; IPython in a terminal has none."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None
