"""What the tests of runs share: someone who watches and can stop them, and what a finished one leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import meristem
from growing import timeless
from meristem.history import Record
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.run import Run


class Watch:
    """Remembers what it is told, and can stop the run."""

    def __init__(self, stop: Callable[[int, int], bool] = lambda epoch, step: False) -> None:
        self.stop, self.records, self.resumed_at, self.finished = stop, [], -1, -1
        self.notes: list[str] = []

    def start(self, run: Run, grower: meristem.Grower) -> None:
        self.resumed_at = self.finished = grower.epoch

    def note(self, text: str) -> None:
        self.notes.append(text)

    def batch(self, step: int, steps: int) -> None:
        if self.stop(self.finished, step):
            raise KeyboardInterrupt

    def epoch(self, record: Record) -> None:
        self.finished = record["epoch"]
        self.records.append(record)
        if self.stop(self.finished, 0):
            raise KeyboardInterrupt


def traces(folder: Folder) -> tuple[Any, ...]:
    """Everything a finished run leaves that must not depend on when it was stopped."""
    records = [json.loads(line) for line in folder.history.read_text().splitlines()]
    weights = (folder.model / "model.safetensors").read_bytes()
    return (
        timeless(records),
        weights,
        (folder.model / "architecture.json").read_text(),
        timeless([json.loads(folder.result.read_text())]),
    )
