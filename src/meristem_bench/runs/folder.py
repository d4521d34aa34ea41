"""The folder of a run: what lies where, which process may write in it, and how a run is found again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.errors import FileError
from meristem.io.atomic import replace_file

try:
    import fcntl
except ImportError:  # no such locks on this system: two processes in one folder go unnoticed
    fcntl = None  # type: ignore[assignment]

_FORMAT = "meristem-run-1"
_LEFT_BY_A_STOPPED_START = re.compile(r"history\.jsonl|lock|\..*\.part")


@dataclass(frozen=True)
class Folder:
    """The files of one run."""

    path: Path

    @property
    def description(self) -> Path:
        """What is run: the resolved configuration, versions, platform."""
        return self.path / "run.json"

    @property
    def space(self) -> Path:
        """What may grow, in outline: for those who look at the run without its model."""
        return self.path / "space.json"

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.ckpt"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def latency(self) -> Path:
        """How fast the finished network is, where that was measured."""
        return self.path / "latency.json"

    @property
    def graphs(self) -> Path:
        """For TensorBoard, where they are wanted."""
        return self.path / "tensorboard"

    @property
    def dense(self) -> Folder:
        """The run of the full model that stands beside this one."""
        return Folder(self.path / "dense")

    # --- what is run ---

    def write_description(self, content: dict[str, Any]) -> None:
        write_json(self.description, {"format": _FORMAT, **content})

    def read_description(self) -> dict[str, Any]:
        """What `write_description` wrote; refuses a folder that holds no run."""
        if not self.path.is_dir():
            raise FileError(f"{self.path} is no folder; give the folder of a run")
        if not self.description.is_file():
            raise FileError(f"{self.path} is not the folder of a run: it holds no {self.description.name}")
        content = read_json(self.description)
        if content.get("format") != _FORMAT:
            raise FileError(f"{self.description} has the format {content.get('format')!r}, expected {_FORMAT!r}")
        return content

    # --- making and locking it ---

    def reserve(self) -> None:
        """Make the folder; refuses one in which something else lies."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = sorted(name for name in os.listdir(self.path) if not _LEFT_BY_A_STOPPED_START.fullmatch(name))
        except OSError as error:
            raise FileError(f"{self.path} cannot be made ({error.strerror}); give another --out") from None
        if self.description.name in names:
            raise FileError(
                f"{self.path} holds another run; go on with it by --resume {self.path}, or give another --out"
            )
        if names:
            raise FileError(f"{self.path} is not empty ({names[0]} lies there); give another --out")

    def _remove_if_unused(self) -> None:
        """Undo `reserve` if no run was begun here."""
        if self.path.is_dir() and not self.description.exists():
            with suppress(OSError):  # not empty: then it is not ours to remove
                for name in ("history.jsonl", "lock"):
                    (self.path / name).unlink(missing_ok=True)
                self.path.rmdir()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing in the folder; if no run was begun in it by the end, it is removed.

        The system unlocks it when the process ends, however it does.
        """
        try:
            file = (self.path / "lock").open("a")
        except OSError as error:
            raise FileError(f"nothing can be written in {self.path} ({error.strerror})") from None
        with file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise FileError(f"another process is running in {self.path}; wait for it, or stop it") from None
            try:
                yield
            finally:
                self._remove_if_unused()


def free_folder(base: Path) -> Folder:
    """A new folder: ``base``, or the first of ``base-2``, ``base-3``, ... that does not exist."""
    path, number = base, 1
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                path.mkdir()
                return Folder(path)
            except FileExistsError:
                number += 1
                path = base.with_name(f"{base.name}-{number}")
    except OSError as error:
        raise FileError(f"{path} cannot be made ({error.strerror}); give another --out") from None


def latest_folder(base: Path) -> Folder:
    """The run among ``base``, ``base-2``, ... that was written to last."""
    name = re.compile(rf"{re.escape(base.name)}(-[1-9][0-9]*)?")
    candidates = [
        path
        for path in (base.parent.iterdir() if base.parent.is_dir() else ())
        if name.fullmatch(path.name) and Folder(path).description.is_file()
    ]
    if not candidates:
        raise FileError(f"there is no run {base} to go on with; leave out --resume to start one")
    return Folder(max(candidates, key=lambda path: max(entry.stat().st_mtime for entry in path.iterdir())))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file at once, so that it is never half written."""
    text = json.dumps(content, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda beside: beside.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror})") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; refuses one that is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("not an object")
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged ({error})") from None
    return content
