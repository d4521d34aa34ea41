"""``meristem data``: fetch a data set, show how it goes, say what to do with it."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TextIO

from meristem.errors import MeristemError, nearest
from meristem_bench.data.data_sets import DATA_SETS, DataSet
from meristem_bench.data.fetch import fetch as fetch_into
from meristem_bench.recipes import RECIPES

_REDRAW_SECONDS = 0.1
_BAR = 20  # characters


def fetch(args: argparse.Namespace) -> int:
    data_sets = {data_set.name: data_set for data_set in DATA_SETS}
    if args.name not in data_sets:
        raise MeristemError(f"there is no data set {args.name!r}; {nearest(args.name, data_sets)}")
    return fetch_data_set(data_sets[args.name], Path(args.folder), sys.stdout)


def fetch_data_set(data_set: DataSet, folder: Path, stream: TextIO) -> int:
    bar = Bar(stream)
    try:
        fetched = fetch_into(data_set, folder, bar)
    except ValueError as error:
        bar.end()
        raise MeristemError(str(error)) from None
    except KeyboardInterrupt:
        bar.end()
        print("meristem: stopped; what was fetched is kept: the same command goes on with it", file=sys.stderr)
        return 130
    bar.say(f"{data_set.name} is {'now' if fetched else 'already'} in {folder}: {data_set.about}")
    for path in [data_set.unpacked] if data_set.unpacked else [required.path for required in data_set.required]:
        bar.say(f"  {folder / path}")
    for archive in [folder / remote.file for remote in data_set.files if data_set.unpacked]:
        if archive.exists():
            bar.say(f"  {archive} (unpacked; not needed any more)")
    bar.say(_advice(data_set, folder, RECIPES))
    return 0


def _advice(data_set: DataSet, folder: Path, recipes: Collection[str]) -> str:
    """A recipe to try, a short one if there is one, or how to read the data."""
    words = ("voc", "voc2012") if data_set.name.startswith("voc2012") else (data_set.name,)
    fitting = [name for name in recipes if any(f"-{word}-" in f"-{name}-" for word in words)]
    fitting = sorted((name for name in fitting if not name.endswith("-dense")), key=lambda x: ("-short" not in x, x))
    if fitting:
        return f"To train on it: meristem grow {fitting[0]} --data {shlex.quote(str(folder))}"
    if data_set.reader:
        module, _, function = data_set.reader.rpartition(".")
        return f"To read it in Python: from {module} import {function}; {function}({str(folder)!r})"
    return f"To train on it: meristem grow MODULE:FUNCTION --data {shlex.quote(str(folder))}"


class Bar:
    """How far a file is: one line that is rewritten on a terminal, a line every tenth elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._open = False  # whether the cursor stands in a line that may be rewritten
        self._file, self._tenth = "", 0
        self._first, self._started, self._drawn = 0, 0.0, 0.0

    def say(self, line: str) -> None:
        self.end()
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def progress(self, file: str, done: int, size: int) -> None:
        now = time.perf_counter()
        if file != self._file:
            self.end()
            self._file, self._tenth, self._first, self._started = file, 0, done, now
        if self._live and (done == size or now - self._drawn > _REDRAW_SECONDS):
            self._drawn = now
            self._rewrite(self._line(done, size, now))
        elif not self._live and (tenth := 10 * done // size) != self._tenth:
            self._tenth = tenth
            self.say(f"{file}  {10 * tenth} % of {size / 1e6:.1f} MB")

    def end(self) -> None:
        """Leave the rewritten line where it is; what is said next stands below it."""
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
            self._open = False

    def _line(self, done: int, size: int, now: float) -> str:
        filled = "#" * (_BAR * done // size)
        parts = [self._file, f"[{filled:.<{_BAR}}]", f"{100 * done / size:.1f} %", f"of {size / 1e6:.1f} MB"]
        if done > self._first and now > self._started:
            rate = (done - self._first) / (now - self._started)
            minutes, seconds = divmod(round((size - done) / rate), 60)
            parts += [f"{rate / 1e6:.1f} MB/s", f"{minutes}:{seconds:02} left"]
        return "  ".join(parts)

    def _rewrite(self, line: str) -> None:
        room = shutil.get_terminal_size().columns - 1  # a full line would wrap and could not be rewritten
        self._stream.write(f"\r\x1b[2K{line[:room]}")
        self._stream.flush()
        self._open = True
