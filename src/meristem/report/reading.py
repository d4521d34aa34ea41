"""Reading a run's folder for a report: what is there is taken, what is not is told in a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from meristem.control.budget import Budget
from meristem.errors import FileError, MeristemError
from meristem.folder import Folder, read_json
from meristem.history import readable_records
from meristem.run import RESULT_FORMAT, known_settings
from meristem.space.outline import FORMAT as OUTLINE_FORMAT
from meristem.space.outline import width

Record = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
_DEEPEST = 4  # folders below a given one in which runs are looked for


@dataclass(frozen=True)
class Shown:
    """A run as far as its folder tells."""

    path: Path
    name: str
    network: str  # a model of the user's own, if it was one
    settings: Mapping[str, Any]
    records: tuple[Record, ...]
    result: Mapping[str, Any] | None
    outline: Mapping[str, Any] | None
    missing: tuple[str, ...]  # sentences about what is not there

    @property
    def epochs(self) -> FloatArray:
        return self.column("epoch")

    @property
    def seed(self) -> Any:
        return self.settings.get("seed", 0)

    @property
    def method(self) -> str:
        return str(self.settings.get("method", "unknown"))

    @property
    def caps(self) -> dict[str, float]:
        """The budget as shares of the full model, as far as they are known."""
        if self.method == "dense":
            return {}
        costs = {name: (self.outline or {}).get(name) for name in ("params", "macs")}
        dense = {name: float(pair[1]) for name, pair in costs.items() if isinstance(pair, list) and len(pair) == 2}
        with suppress(MeristemError):
            return Budget.parse(str(self.settings.get("budget"))).shares_of(dense)
        return {}

    def column(self, *path: str) -> FloatArray:
        """One number of every record, NaN where there is none: ``column("metrics", "train_loss")``."""
        return np.array([_number(record, path) for record in self.records], dtype=np.float64)

    def names(self, *path: str) -> list[str]:
        """Under which names some record holds something at ``path``, in the order of their first appearance."""
        found: dict[str, None] = {}
        for record in self.records:
            content: Any = record
            for key in path:
                content = content.get(key) if isinstance(content, dict) else None
            if isinstance(content, dict):
                found.update(dict.fromkeys(content))
        return list(found)

    @cached_property
    def full(self) -> dict[str, float]:
        """The units of every group at full size; where that is not known, the most it ever had."""
        if self.outline is not None:
            return {group["name"]: float(group["units"]) for group in self.outline["groups"]}
        groups = self.names("widths")
        return {name: float(np.nan_to_num(self.column("widths", name)).max(initial=1.0)) for name in groups}

    @cached_property
    def depth_groups(self) -> frozenset[str]:
        """Groups whose unit is a whole block."""
        groups = self.outline["groups"] if self.outline is not None else ()
        return frozenset(group["name"] for group in groups if group["kind"] == "depth")

    @property
    def width_groups(self) -> list[str]:
        """Groups of filters, cells or heads, in the order of the network."""
        return [name for name in self.full if name not in self.depth_groups and name in self.names("widths")]

    @property
    def layers(self) -> list[tuple[str, float, float, int]]:
        """Every layer of the final network: its module, its width, its full width, its stage."""
        if self.outline is None or not self.records:
            return []
        last = self.records[-1].get("widths")
        widths = {**dict.fromkeys(self.full, 0.0), **(last if isinstance(last, dict) else {})}
        return [
            (layer["module"], width(layer["out"], widths), float(layer["out"]["size"]), int(layer["stage"]))
            for layer in self.outline["layers"]
        ]


def _number(record: Record, path: Sequence[str]) -> float:
    content: Any = record
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    return float(content) if isinstance(content, (int, float)) else float("nan")


# --- one folder ---


def read_run(path: Path) -> Shown:
    """The run in a folder. Refused is only what holds no run at all."""
    folder, missing = Folder(path), list[str]()
    if not path.is_dir():
        raise FileError(f"{path} is no folder; give the folder of a run")
    try:
        content = folder.described()
    except FileError as error:
        if not folder.history.is_file():
            raise
        content = {}
        missing.append(f"What was run is not known: {error}.")
    written = content.get("settings")
    settings = known_settings(written) if isinstance(written, dict) else {}
    records = _records(folder, missing)
    result = _json(folder.result, RESULT_FORMAT, missing) if folder.result.exists() else None
    if result is None:
        missing.append(_unfinished(records, settings))
    outline = _outline(folder.space, missing) if folder.space.exists() else None
    if outline is None:
        missing.append(
            "The outline of the full network is not there: widths are shown as shares of the largest that was seen, "
            "and the final network is not drawn."
        )
    name = str(content.get("name", path.name))
    network = str(content.get("network") or "")
    return Shown(path, name, network, settings, tuple(records), result, outline, tuple(missing))


def _records(folder: Folder, missing: list[str]) -> list[Record]:
    try:
        records, damaged = readable_records(folder.history)
    except FileError as error:
        missing.append(f"There is no history: {error}.")
        return []
    if damaged:
        lines = ", ".join(map(str, damaged[:5])) + (" and more" if len(damaged) > 5 else "")
        missing.append(f"Damaged lines of {folder.history.name} are left out: {lines}.")
    if not records:
        missing.append("No epoch is finished yet.")
    numbered = [record for record in records if np.isfinite(_number(record, ("epoch",)))]
    return sorted(numbered, key=lambda record: _number(record, ("epoch",)))


def _unfinished(records: Sequence[Record], settings: Mapping[str, Any]) -> str:
    epochs = sum(count for key in ("epochs", "fine_tune") if isinstance(count := settings.get(key), int))
    done = f"{len(records)} of {epochs}" if epochs else str(len(records))
    return f"The run is not finished, or still going on: {done} epochs are there, and no test result."


def _json(path: Path, wanted: str, missing: list[str]) -> Mapping[str, Any] | None:
    try:
        content = read_json(path)
        if content.get("format") != wanted:
            raise FileError(f"{path} has the format {content.get('format')!r}, expected {wanted!r}")
    except FileError as error:
        missing.append(f"{error}.")
        return None
    return content


def _outline(path: Path, missing: list[str]) -> Mapping[str, Any] | None:
    content = _json(path, OUTLINE_FORMAT, missing)
    try:
        if content is not None:
            full = {str(group["name"]): float(group["units"]) for group in content["groups"] if group["kind"]}
            for layer in content["layers"]:
                width(layer["out"], full), str(layer["module"]), int(layer["stage"])
    except (KeyError, TypeError, ValueError):
        missing.append(f"{path} is damaged.")
        return None
    return content


# --- several ---


def read_runs(paths: Sequence[Path]) -> list[Shown]:
    """The runs in the folders given, or below them, the full models trained beside them included."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise FileError(f"{path} is no folder; give the folder of a run, or one with runs in it")
        inside = list(_folders(path, _DEEPEST))
        if not inside:
            raise FileError(
                f"there is no run in {path}: neither it nor a folder below holds a run.json or history.jsonl"
            )
        found.update(dict.fromkeys(inside))
    return [read_run(path) for path in found]


def _folders(path: Path, deep: int) -> Iterator[Path]:
    if Folder(path).description.is_file() or Folder(path).history.is_file():
        yield path
    if deep:
        for inner in sorted(entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)):
            yield from _folders(Path(inner), deep - 1)
