"""How a run is shown while it goes: one line that is rewritten on a terminal, a line an epoch elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from meristem.metric import metric
from meristem.tables import blocks_text, clock, percent

if TYPE_CHECKING:
    from meristem.grower import Grower
    from meristem.run import Run

_REDRAW_SECONDS = 0.1
_RECENT = 5  # epochs that the time left is judged by: early ones say little about a network that grows


class Progress:
    """Tells how a run goes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._text, self._metric = "", metric("")
        self._drawn, self._open = 0.0, False  # when the line was last rewritten, and whether the cursor stands in it
        self._done, self._epochs, self._units = 0, 0, 1
        self._ends: list[float] = []

    def start(self, run: Run, grower: Grower) -> None:
        self._done, self._epochs, self._units = grower.epoch, run.epochs, sum(grower.space.full.values()) or 1
        self._metric, self._text = metric(run.task.headline), "starting"
        plan = (
            "the full model"
            if run.method == "dense"
            else f"budget {run.budget}  method {run.method}  planned spend {percent(grower.expected_spend_frac)}"
        )
        self._say(f"{run.name}: {plan}  seed {run.seed}  {run.epochs} epoch{'s' * (run.epochs > 1)}")
        if self._done:
            self._say(f"resumed after epoch {self._done}")
        self._ends = [time.perf_counter()]

    def batch(self, step: int, steps: int) -> None:
        if self._live and (now := time.perf_counter()) - self._drawn > _REDRAW_SECONDS:
            self._drawn = now
            self._rewrite(f"epoch {self._done + 1}/{self._epochs}  step {step}/{steps}  {self._text}")

    def epoch(self, record: Mapping[str, Any]) -> None:
        self._done = record["epoch"]
        self._ends = [*self._ends[-_RECENT:], time.perf_counter()]
        self._text = self._numbers(record)
        line = f"epoch {self._done}/{self._epochs}  {self._text}"
        if self._live:
            self._rewrite(line)
            if self._done == self._epochs:
                self.end()
        else:
            self._say(line)

    def end(self) -> None:
        """Leave the rewritten line where it is; what is said next stands below it."""
        if self._open:
            self._say("")

    def _numbers(self, record: Mapping[str, Any]) -> str:
        """What matters most stands first: a narrow terminal cuts the rest."""
        metrics = record["metrics"]
        parts = [f"{clock(self._seconds_left())} left"]
        if (value := metrics.get(f"val_{self._metric.name}")) is not None:
            parts.append(f"{self._metric.name} {self._metric.text(value)}")
        parts += [
            f"{name} {percent(record[f'{name}_frac'])} (plan {percent(x)})" for name, x in record["planned"].items()
        ]
        if record.get("blocks"):
            parts.append(f"blocks {blocks_text(record['blocks'])}")
        parts.append(f"spend {percent(record['spend_frac'])}")
        parts.append(f"loss {metrics['train_loss']:.3f}")
        return "  ".join([*parts, f"width {percent(sum(record['widths'].values()) / self._units)}"])

    def _seconds_left(self) -> float:
        per_epoch = (self._ends[-1] - self._ends[0]) / max(1, len(self._ends) - 1)
        return per_epoch * (self._epochs - self._done)

    def _rewrite(self, line: str) -> None:
        room = shutil.get_terminal_size().columns - 1  # a full line would wrap and could not be rewritten
        self._stream.write(f"\r\x1b[2K{line[:room]}")
        self._stream.flush()
        self._open = True

    def _say(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()
        self._open = False
