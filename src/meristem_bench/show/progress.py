"""How a run is shown while it goes: bars for the widths on a terminal that has room, one line that is rewritten on
another, a line an epoch elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from meristem_bench.runs.metric import metric
from meristem_bench.show.picture import LEAST_COLUMNS, LEAST_LINES, Picture, draw
from meristem_bench.show.screen import Screen
from meristem_bench.show.sketch import Sketch
from meristem_bench.show.tables import blocks_text, clock, percent

if TYPE_CHECKING:
    from meristem.grower import Grower
    from meristem_bench.runs.run import Run

_REDRAW_SECONDS = 0.1
_RECENT = 5  # epochs that the time left is judged by: early ones say little about a network that grows


class Progress:
    """Tells how a run goes."""

    def __init__(self, stream: TextIO, plain: bool = False) -> None:
        self._screen, self._plain = Screen(stream), plain
        self._at, self._text, self._metric = "", "", metric("")
        self._drawn = 0.0  # when it was last drawn
        self._done, self._epochs, self._units = 0, 0, 1
        self._ends: list[float] = []
        self._sketch: Sketch | None = None

    def start(self, run: Run, grower: Grower) -> None:
        self._done, self._epochs, self._units = grower.epoch, run.all_epochs, sum(grower.space.full.values()) or 1
        self._metric, self._text = metric(run.task.headline), "starting"
        plan = "the full model" if run.method == "dense" else f"budget {run.budget}  method {run.method}"
        if run.method != "dense" and grower.method.controller.follows_plan:
            plan += f"  planned spend {percent(grower.expected_spend_frac)}"
        epochs = f"{run.epochs} epoch{'s' * (run.epochs > 1)}"
        epochs += f" and {run.fine_tune} of fine-tuning" if run.fine_tune else ""
        self._screen.say(f"{run.name}: {plan}  seed {run.seed}  {epochs}")
        if self._done:
            self._screen.say(f"resumed after epoch {self._done}")
        self._ends = [time.perf_counter()]
        grows = run.method != "dense"  # bars that are full and stay so say nothing
        self._sketch = Sketch(grower) if self._screen.live and not self._plain and grows else None

    def batch(self, step: int, steps: int) -> None:
        if self._screen.live and time.perf_counter() - self._drawn > _REDRAW_SECONDS:
            self._at = f"epoch {self._done + 1}/{self._epochs}  step {step}/{steps}"
            self._draw()

    def epoch(self, record: Mapping[str, Any]) -> None:
        self._done = record["epoch"]
        self._ends = [*self._ends[-_RECENT:], time.perf_counter()]
        self._at, self._text = f"epoch {self._done}/{self._epochs}", self._numbers(record)
        if self._sketch is not None:
            self._sketch.step(record, self._metric)
        if not self._screen.live:
            self._screen.say(f"{self._at}  {self._text}")
        elif self._done == self._epochs:
            self._draw()
            self.end()
        elif self._sketch is None or time.perf_counter() - self._drawn > _REDRAW_SECONDS:
            self._draw()

    def end(self) -> None:
        """Leave what is shown where it is; what is said next stands below it."""
        if self._screen.open and self._sketch is not None:
            self._draw()  # as it was last, and without what was typed meanwhile
        self._screen.leave()

    def _numbers(self, record: Mapping[str, Any]) -> str:
        """What matters most stands first: a narrow terminal cuts the rest."""
        metrics = record["metrics"]
        parts = [f"{clock(self._seconds_left())} left"]
        if (value := metrics.get(f"val_{self._metric.name}")) is not None:
            parts.append(f"{self._metric.name} {self._metric.text(value)}")
        if record.get("fine_tuning"):
            parts.append("fine-tuning")
        for name in record["planned"] or ("params",):
            plan = f" (plan {percent(record['planned'][name])})" if record["planned"] else ""
            parts.append(f"{name} {percent(record[f'{name}_frac'])}{plan}")
        if record.get("blocks"):
            parts.append(f"blocks {blocks_text(record['blocks'])}")
        parts.append(f"spend {percent(record['spend_frac'])}")
        parts.append(f"loss {metrics['train_loss']:.3f}")
        return "  ".join([*parts, f"width {percent(sum(record['widths'].values()) / self._units)}"])

    def _seconds_left(self) -> float:
        per_epoch = (self._ends[-1] - self._ends[0]) / max(1, len(self._ends) - 1)
        return per_epoch * (self._epochs - self._done)

    def _draw(self) -> None:
        columns, lines = shutil.get_terminal_size()  # each time: it may have changed
        if self._sketch is not None and columns >= LEAST_COLUMNS and lines >= LEAST_LINES:
            left = [f"{clock(self._seconds_left())} left"] if len(self._ends) > 1 else []
            picture = Picture((self._at, *left, *self._sketch.numbers), self._sketch.rows)
            text = "\n".join([*draw(picture, columns, lines, self._screen.ink), ""])
        else:
            text = f"{self._at}  {self._text}"[: columns - 1]  # a full line would wrap and could not be rewritten
        self._screen.show(text, columns, lines)
        self._drawn = time.perf_counter()
