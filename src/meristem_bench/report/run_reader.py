"""Reads the folders of runs for a report: takes what is there, and says in a sentence what is missing."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meristem.errors import FileError
from meristem.history import readable_records
from meristem.space.outline import FORMAT as OUTLINE_FORMAT
from meristem.space.outline import width
from meristem_bench.report.page_text import legible
from meristem_bench.report.reported_run import DAMAGE, Record, ReportedRun, number
from meristem_bench.runs.description import with_defaults
from meristem_bench.runs.folder import Folder, read_json
from meristem_bench.runs.result import RESULT_FORMAT

_MAX_DEPTH = 4  # folders below a given one in which runs are looked for
_LAST_EPOCH = 10**7


def read_reported_run(path: Path) -> ReportedRun:
    """The run in a folder; raises only if the folder holds no run at all."""
    folder, missing = Folder(path), list[str]()
    if not path.is_dir():
        raise FileError(f"{path} is no folder; give the folder of a run")
    try:
        content = folder.read_description()
    except FileError as error:
        if not folder.history.is_file():
            raise
        content = {}
        missing.append(f"What was run is not known: {error}.")
    written = content.get("settings", {})
    settings = with_defaults(written) if written and isinstance(written, dict) else {}
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
    run = ReportedRun(path, name, network, settings, tuple(records), result, outline, ())
    return dataclasses.replace(run, missing=(*missing, *_mismatches(run)))


def _mismatches(run: ReportedRun) -> Iterator[str]:
    """Sentences about what the records and the outline do not agree on."""
    if run.outline is None or not run.records:
        return
    unknown = [name for name in run.names("widths") if name not in run.full]
    if unknown:
        yield f"Groups that the outline of the full network does not have are left out: {_listed(unknown)}."
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
    """One record per epoch, in the order of epochs."""
    numbered = [(number(record, ("epoch",)), record) for record in records]
    numbered = [(epoch, record) for epoch, record in numbered if 1 <= epoch <= _LAST_EPOCH and epoch.is_integer()]
    if len(numbered) < len(records):
        missing.append(f"Records that name no epoch are left out: {len(records) - len(numbered)}.")
    by_epoch = dict(numbered)
    if len(by_epoch) < len(numbered):
        missing.append("Some epochs have several records: the last of each is taken.")
    return [by_epoch[epoch] for epoch in sorted(by_epoch)]


def _unfinished(records: Sequence[Record], settings: Mapping[str, Any]) -> str:
    epochs = sum(count for key in ("epochs", "fine_tune") if isinstance(count := settings.get(key), int))
    epochs = 0 if settings.get("cost_of") else epochs  # another run's cost decides how many there will be
    done = f"{len(records)} of {epochs}" if epochs else str(len(records))
    return f"The run is not finished, or still going on: {done} epochs are there, and no test result."


def _json(path: Path, expected_format: str, missing: list[str]) -> Mapping[str, Any] | None:
    try:
        content = read_json(path)
        if content.get("format") != expected_format:
            raise FileError(f"{path} has the format {content.get('format')!r}, expected {expected_format!r}")
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
    except DAMAGE:
        missing.append(f"{path} is damaged.")
        return None
    return content


def _check_group(group: Mapping[str, Any]) -> None:
    names = [group["name"], group["kind"], *list[Any](group["makers"])]
    numbers = [number(group, (key,)) for key in ("units", "params_frac")]
    if not (all(isinstance(name, str) for name in names) and np.isfinite(numbers).all() and numbers[0] >= 1):
        raise ValueError("not a group")


def _check_layer(layer: Mapping[str, Any], full: Mapping[str, float]) -> None:
    has_width = np.isfinite(width(layer["out"], full)) and number(layer, ("out", "size")) > 0
    if not (isinstance(layer["module"], str) and has_width and int(layer["stage"]) >= 0):
        raise ValueError("not a layer")


# --- several folders ---


def read_runs(paths: Sequence[Path], remarks: list[str] | None = None) -> list[ReportedRun]:
    """The runs in these folders, or below them, the full models trained beside them included.

    Folders that cannot be read are named in ``remarks``.
    """
    folders: dict[Path, Path] = {}  # by resolved path: a run is read once
    unreadable: list[str] = []
    for path in paths:
        if not path.is_dir():
            raise FileError(f"{path} is no folder; give the folder of a run, or one with runs in it")
        inside = list(_run_folders(path, _MAX_DEPTH, unreadable))
        if not inside:
            raise FileError(
                f"there is no run in {path}: neither it nor a folder below holds a run.json or history.jsonl"
            )
        for folder in inside:
            folders.setdefault(folder.resolve(), folder)
    if unreadable and remarks is not None:
        remarks.append(f"Folders that cannot be looked into are left out: {_listed(unreadable)}.")
    return [read_reported_run(path) for path in folders.values()]


def _run_folders(path: Path, levels: int, unreadable: list[str]) -> Iterator[Path]:
    """The folders of runs at and up to ``levels`` below ``path``."""
    try:
        entries = {entry.name: entry for entry in os.scandir(path)}
        holds_run = any(
            file.name in entries and file.is_file() for file in (Folder(path).description, Folder(path).history)
        )
        inside = sorted(entry.path for entry in entries.values() if entry.is_dir(follow_symlinks=False))
    except OSError:
        unreadable.append(str(path))
        return
    if holds_run:
        yield path
    if levels:
        for inner in inside:
            yield from _run_folders(Path(inner), levels - 1, unreadable)
