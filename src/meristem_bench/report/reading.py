"""Reading a run's folder for a report: what is there is taken, what is not is told in a sentence."""

from __future__ import annotations

import dataclasses
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
from meristem.history import readable_records
from meristem.space.outline import FORMAT as OUTLINE_FORMAT
from meristem.space.outline import width
from meristem_bench.runs.folder import Folder, read_json
from meristem_bench.runs.run import RESULT_FORMAT, known_settings

Record = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
_DEEPEST = 4  # folders below a given one in which runs are looked for
_LARGEST = 1e100  # what is beyond it is damage, and would break sums and scales
_LAST_EPOCH = 10**7
_DAMAGE = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)  # what content of another shape leads to


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
    def folder(self) -> str:
        """The last part of its path, whichever way that is written."""
        return self.path.resolve().name

    @property
    def method(self) -> str:
        return str(self.settings.get("method", "unknown"))

    @property
    def caps(self) -> dict[str, float]:
        """The budget as shares of the full model, as far as they are known."""
        if self.method == "dense":
            return {}
        costs: dict[str, float] = {}
        for name in ("params", "macs"):
            pair = (self.outline or {}).get(name)
            with suppress(*_DAMAGE):
                costs[name] = float(pair[1])  # type: ignore[index]
        dense = {name: cost for name, cost in costs.items() if np.isfinite(cost) and cost > 0}
        with suppress(MeristemError):
            return Budget.parse(str(self.settings.get("budget"))).shares_of(dense)
        return {}

    def column(self, *path: str) -> FloatArray:
        """One number of every record, NaN where there is none: ``column("metrics", "train_loss")``."""
        return np.array([number(record, path) for record in self.records], dtype=np.float64)

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
        known = set(self.names("widths")) - self.depth_groups
        return [name for name in self.full if name in known]

    @property
    def layers(self) -> list[tuple[str, float, float, int]]:
        """Every layer of the final network: its module, its width, its full width, its stage.

        None where the last record does not tell the widths of all groups.
        """
        if self.outline is None or not self.records:
            return []
        widths = {name: number(self.records[-1], ("widths", name)) for name in self.full}
        if not np.isfinite(list(widths.values())).all():
            return []
        return [
            (layer["module"], width(layer["out"], widths), float(layer["out"]["size"]), int(layer["stage"]))
            for layer in self.outline["layers"]
        ]


def number(content: Any, path: Sequence[str]) -> float:
    """The number that stands at ``path``, NaN where there is none.

    >>> number({"a": {"b": 3}}, ("a", "b")), number({"a": "b"}, ("a", "b"))
    (3.0, nan)
    """
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    return float(content) if isinstance(content, (int, float)) and abs(content) < _LARGEST else float("nan")


def legible(text: str, most: int | None = None) -> str:
    """As it can be put on a page and a screen: in one line, of whole characters, not longer than ``most``.

    >>> legible("a\\nb"), legible("resnet20-of-mine", 9)
    ('a\ufffdb', 'resnet20…')
    """
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


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
    written = content.get("settings", {})
    settings = known_settings(written) if written and isinstance(written, dict) else {}
    if not isinstance(written, dict):
        missing.append(f"What was run is not known: the settings in {folder.description} are damaged.")
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
    name, network = legible(str(content.get("name") or path.resolve().name), 60), content.get("network")
    network = legible(network, 60) if isinstance(network, str) else ""
    shown = Shown(path, name, network, settings, tuple(records), result, outline, ())
    return dataclasses.replace(shown, missing=(*missing, *_unknown(shown)))


def _unknown(run: Shown) -> Iterator[str]:
    """Where the records and the outline do not fit."""
    if run.outline is None or not run.records:
        return
    strange = [name for name in run.names("widths") if name not in run.full]
    if strange:
        yield f"Groups that the outline of the full network does not have are left out: {_listed(strange)}."
    if not run.layers:
        yield "The final network is not drawn: its layers, or the widths of its groups, are not known."


def _listed(items: Sequence[Any]) -> str:
    return ", ".join(legible(str(item), 60) for item in items[:5]) + (" and more" if len(items) > 5 else "")


def _records(folder: Folder, missing: list[str]) -> list[Record]:
    try:
        records, damaged = readable_records(folder.history)
    except FileError as error:
        missing.append(f"There is no history: {error}.")
        return []
    if damaged:
        missing.append(f"Damaged lines of {folder.history.name} are left out: {_listed(damaged)}.")
    if not records:
        missing.append("No epoch is finished yet.")
    return _by_epoch(records, missing)


def _by_epoch(records: Sequence[Record], missing: list[str]) -> list[Record]:
    """One record an epoch, in their order."""
    numbered = [(number(record, ("epoch",)), record) for record in records]
    numbered = [(epoch, record) for epoch, record in numbered if 1 <= epoch <= _LAST_EPOCH and epoch.is_integer()]
    if len(numbered) < len(records):
        missing.append(f"Records that name no epoch are left out: {len(records) - len(numbered)}.")
    found = dict(numbered)
    if len(found) < len(numbered):
        missing.append("Some epochs have several records: the last of each is taken.")
    return [found[epoch] for epoch in sorted(found)]


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
            for group in content["groups"]:
                _check_group(group)
            full = {group["name"]: group["units"] for group in content["groups"]}
            for layer in content["layers"]:
                _check_layer(layer, full)
    except _DAMAGE:
        missing.append(f"{path} is damaged.")
        return None
    return content


def _check_group(group: Mapping[str, Any]) -> None:
    names = [group["name"], group["kind"], *list[Any](group["makers"])]
    numbers = [number(group, (key,)) for key in ("units", "params_frac")]
    if not (all(isinstance(name, str) for name in names) and np.isfinite(numbers).all() and numbers[0] >= 1):
        raise ValueError("not a group")


def _check_layer(layer: Mapping[str, Any], full: Mapping[str, float]) -> None:
    known = np.isfinite(width(layer["out"], full)) and number(layer, ("out", "size")) > 0
    if not (isinstance(layer["module"], str) and known and int(layer["stage"]) >= 0):
        raise ValueError("not a layer")


# --- several ---


def read_runs(paths: Sequence[Path], remarks: list[str] | None = None) -> list[Shown]:
    """The runs in the folders given, or below them, the full models trained beside them included.

    What cannot be looked into is told in ``remarks``.
    """
    found: dict[Path, Path] = {}
    closed: list[str] = []
    for path in paths:
        if not path.is_dir():
            raise FileError(f"{path} is no folder; give the folder of a run, or one with runs in it")
        inside = list(_folders(path, _DEEPEST, closed))
        if not inside:
            raise FileError(
                f"there is no run in {path}: neither it nor a folder below holds a run.json or history.jsonl"
            )
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    if closed and remarks is not None:
        remarks.append(f"Folders that cannot be looked into are left out: {_listed(closed)}.")
    return [read_run(path) for path in found.values()]


def _folders(path: Path, deep: int, closed: list[str]) -> Iterator[Path]:
    try:
        entries = {entry.name: entry for entry in os.scandir(path)}
        holds_run = any(
            file.name in entries and file.is_file() for file in (Folder(path).description, Folder(path).history)
        )
        inside = sorted(entry.path for entry in entries.values() if entry.is_dir(follow_symlinks=False))
    except OSError:
        closed.append(str(path))
        return
    if holds_run:
        yield path
    if deep:
        for inner in inside:
            yield from _folders(Path(inner), deep - 1, closed)
