"""A text on a terminal that is drawn again and again in the same place."""

from __future__ import annotations

import os
import re
from typing import TextIO

from meristem_bench.show.picture import LETTERS, Ink

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """The lower end of a terminal. What was shown stays there until something else is, in its place or below it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown, self._lines = "", 0  # and the lines of the terminal at that time
        self._stranded = False  # whether a terminal that became small has moved a part of it up out of reach
        self.live = stream.isatty() and os.environ.get("TERM") != "dumb"  # a dumb one cannot go back
        self.ink = _ink(stream)

    @property
    def open(self) -> bool:
        return bool(self._shown)

    def show(self, text: str, columns: int, lines: int) -> None:
        """In place of what was shown last. The cursor stays at the end of the text, or below it if that ends a line."""
        above = self._rows_above(columns)
        self._stranded |= above >= lines
        up, clear = (f"\x1b[{above}A", "\x1b[J") if above else ("", "")
        if self._stranded and lines > self._lines:  # it may have come back
            up, clear = "\x1b[H\x1b[2J", ""
        drawn = "\n".join(f"\x1b[2K{line}" for line in text.split("\n"))
        self._stream.write(f"{up}\r{drawn}{clear}")
        self._stream.flush()
        self._shown, self._lines = text, lines

    def say(self, line: str) -> None:
        """A line that stays; it ends what was shown."""
        self._stream.write(f"{line}\n")
        self._stream.flush()
        self._shown = ""

    def leave(self) -> None:
        """What is said next stands below what was shown."""
        if self._shown.endswith("\n"):
            self._shown = ""
        elif self._shown:
            self.say("")

    def _rows_above(self, columns: int) -> int:
        """How far the cursor is below the beginning: a terminal that became narrower has wrapped the lines."""
        *before, last = (len(_ESCAPES.sub("", line)) for line in self._shown.split("\n"))
        return sum(max(1, -(-length // columns)) for length in before) + max(0, last - 1) // columns


def _ink(stream: TextIO) -> Ink:
    """Colours unless NO_COLOR is set to something; blocks if the stream can write them."""
    colour = not os.environ.get("NO_COLOR")
    blocks = Ink(colour=colour)
    try:
        f"{blocks.stayed}{blocks.came}{blocks.absent}".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return Ink(LETTERS.stayed, LETTERS.came, LETTERS.absent, colour)
    return blocks
