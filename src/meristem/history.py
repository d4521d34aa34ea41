"""History: one JSON object a line, one line per epoch, appended. A crash inside a line loses that line alone."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from meristem.cost.count import cost_at
from meristem.cost.memory import peak_bytes
from meristem.cost.price import Prices
from meristem.errors import FileError
from meristem.io.atomic import replace_file
from meristem.space.arrays import BoolArray, FloatArray
from meristem.space.plan import Plan
from meristem.space.space import Space

Record = dict[str, Any]


class History:
    """The records of a run, and the file they are appended to, if any."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.records: list[Record] = []
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _drop_unfinished_line(self.path)
            except OSError as error:
                raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> FileError:
        return FileError(f"the history cannot be written to {self.path}: {error.strerror}")

    def append(self, record: Record) -> None:
        self.records.append(record)
        if self.path is not None:
            line = _line(record).encode()
            try:
                with self.path.open("ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise self._unwritable(error) from None

    def restart(self, records: list[Record]) -> None:
        """Make these the records so far, in the file too: what a killed run wrote beyond its checkpoint goes away."""
        self.records = list(records)
        if self.path is None:
            return
        text = "".join(_line(record) for record in records)
        try:
            replace_file(self.path, lambda beside: beside.write_text(text, encoding="utf-8"))
        except OSError as error:
            raise self._unwritable(error) from None


def _line(record: Record) -> str:
    return json.dumps(_valid(record), allow_nan=False, separators=(",", ":")) + "\n"


def _valid(value: Any) -> Any:
    """JSON has no word for numbers that are none; null stands for them."""
    if isinstance(value, dict):
        return {name: _valid(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _drop_unfinished_line(path: Path) -> None:
    """Make the file if need be, and cut off what a stopped writer left without its newline."""
    with path.open("a+b") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)


def read_history(path: str | Path) -> list[Record]:
    """All whole records of a file. An unfinished last line is left out; a damaged line elsewhere is an error."""
    records, damaged = readable_records(path)
    if damaged:
        raise FileError(f"line {damaged[0]} of {path} is damaged; the lines before it are good")
    return records


def readable_records(path: str | Path) -> tuple[list[Record], list[int]]:
    """All records of a file that can be read, and the numbers of the lines that cannot.

    A last line without its newline is neither: its writer was stopped, or is writing it just now.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FileError(f"the history {path} cannot be read: {error.strerror}") from None
    records, damaged = list[Record](), list[int]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("not an object")
            records.append(record)
        except (ValueError, RecursionError):
            if number < len(lines):
                damaged.append(number)
    return records, damaged


# --- what a record holds ---


def epoch_record(
    prices: Prices,
    active: Mapping[str, BoolArray],
    *,
    widths: Mapping[str, int],
    epoch: Mapping[str, Any],
    temperature: Mapping[str, FloatArray],
    scores: Mapping[str, FloatArray],
    device: torch.device,
) -> Record:
    """Everything that is recorded of one epoch; ``epoch`` is what concerns the run, the rest its network."""
    return {
        **epoch,
        "widths": dict(widths),
        **dataclasses.asdict(cost_at(prices.space, widths)),
        **{f"{name}_frac": share for name, share in prices.shares(widths).items()},
        "peak_bytes": peak_bytes(device),
        "blocks": live_blocks(prices.space, active),
        "temperature": {name: group["mean"] for name, group in statistics(temperature, active).items()},
        "temperature_with_absent": {name: float(temperature[name].mean()) for name in active if active[name].any()},
        "scores": statistics(scores, active),
    }


def moves(plan: Plan | None) -> dict[str, int]:
    """How many units come and go."""
    changes = plan.changes.values() if plan is not None else ()
    return {
        "grown": sum(len(change.grow) for change in changes),
        "restored": sum(len(change.restore) for change in changes),
        "pruned": sum(len(change.prune) for change in changes),
    }


def live_blocks(space: Space, masks: Mapping[str, BoolArray]) -> dict[str, int]:
    """How many blocks each stage has, those included that can never be absent."""
    return {
        stage.name: stage.fixed + sum(bool(masks[block.group][0]) for block in stage.blocks) for stage in space.stages
    }


def statistics(values: Mapping[str, FloatArray], masks: Mapping[str, BoolArray]) -> dict[str, dict[str, float]]:
    """Mean, smallest and largest value over the live units of every group that has some."""
    by_group = {}
    for name, mask in masks.items():
        if mask.any():
            live = values[name][mask]
            by_group[name] = {"mean": float(live.mean()), "min": float(live.min()), "max": float(live.max())}
    return by_group
