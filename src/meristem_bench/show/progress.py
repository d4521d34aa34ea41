"""The progress of a run: width bars on a terminal that has room, one line that is rewritten on another, a line per
epoch elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from meristem_bench.runs.task_metric import metric
from meristem_bench.show.formatting import blocks_text, clock, percent
from meristem_bench.show.grower_view import GrowerView
from meristem_bench.show.terminal_region import TerminalRegion
from meristem_bench.show.width_bars import MIN_COLUMNS, MIN_LINES, WidthBars, draw_width_bars

if TYPE_CHECKING:
    from meristem.grower import Grower
    from meristem_bench.runs.run import Run

_REDRAW_SECONDS = 0.1
_RECENT = 5  # epochs from which the time left is estimated: early ones say little about a network that grows


class ProgressDisplay:
    """Observes a run and shows how it goes."""

    def __init__(self, stream: TextIO, plain: bool = False) -> None:
        self._region, self._plain = TerminalRegion(stream), plain
        self._at, self._text, self._metric = "", "", metric("")
        self._drawn_at = 0.0
        self._done, self._epochs, self._units = 0, 0, 1
        self._ends: list[float] = []
        self._view: GrowerView | None = None

    def start(self, run: Run, grower: Grower) -> None:
        self._done, self._epochs, self._units = grower.epoch, run.all_epochs, sum(grower.space.full.values()) or 1
        self._metric, self._text = metric(run.task.headline), "starting"
        plan = (
            "the full model"
            if run.growth.policies.ignores_budget
            else f"budget {run.growth.budget}  method {run.growth.method}"
        )
        if not run.growth.policies.ignores_budget and grower.method.controller.follows_plan:
            plan += f"  planned training cost {percent(grower.expected_spend_frac)}"
        epochs = f"{run.epochs} epoch{'s' * (run.epochs > 1)}"
        epochs += f" and {run.fine_tuning.epochs} of fine-tuning" if run.fine_tuning.epochs else ""
        self._region.print_line(f"{run.name}: {plan}  seed {run.seed}  {epochs}")
        for name, (low, high) in grower.expected_costs.items():
            if grower.method.controller.follows_plan and percent(low) != percent(high):
                found = f"about {percent(low)} to {percent(high)}"
                self._region.print_line(f"The budget leaves {name} free: the final network will have {found} of them")
        if self._done:
            self._region.print_line(f"resumed after epoch {self._done}")
        self._ends = [time.perf_counter()]
        shows_bars = self._region.redraws and not self._plain and grower.method.grows  # bars that stay say nothing
        self._view = GrowerView(grower) if shows_bars else None

    def note(self, text: str) -> None:
        self._region.print_line(text)

    def batch(self, step: int, steps: int) -> None:
        if self._region.redraws and time.perf_counter() - self._drawn_at > _REDRAW_SECONDS:
            self._at = f"epoch {self._done + 1}/{self._epochs}  step {step}/{steps}"
            self._draw()

    def epoch(self, record: Mapping[str, Any]) -> None:
        self._done = record["epoch"]
        self._ends = [*self._ends[-_RECENT:], time.perf_counter()]
        self._at, self._text = f"epoch {self._done}/{self._epochs}", self._numbers(record)
        if self._view is not None:
            self._view.update(record, self._metric)
        if not self._region.redraws:
            self._region.print_line(f"{self._at}  {self._text}")
        elif self._done == self._epochs:
            self._draw()
            self.end()
        elif self._view is None or time.perf_counter() - self._drawn_at > _REDRAW_SECONDS:
            self._draw()

    def end(self) -> None:
        """Leave what is shown where it is; what is printed next stands below it."""
        if self._region.is_open and self._view is not None:
            self._draw()  # once more, over what was typed meanwhile
        self._region.close()

    def _numbers(self, record: Mapping[str, Any]) -> str:
        """The numbers of an epoch, the most important first: a narrow terminal cuts the rest."""
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
        if self._view is not None and columns >= MIN_COLUMNS and lines >= MIN_LINES:
            left = [f"{clock(self._seconds_left())} left"] if len(self._ends) > 1 else []
            bars = WidthBars((self._at, *left, *self._view.numbers), self._view.rows)
            text = "\n".join([*draw_width_bars(bars, columns, lines, self._region.glyphs), ""])
        else:
            text = f"{self._at}  {self._text}"[: columns - 1]  # a full line would wrap and could not be rewritten
        self._region.show(text, columns, lines)
        self._drawn_at = time.perf_counter()
