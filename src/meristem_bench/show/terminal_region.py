"""The lower end of a terminal, where a text is drawn again and again in the same place."""

from __future__ import annotations

import os
import re
from typing import TextIO

from meristem_bench.show.width_bars import ASCII, BarGlyphs

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class TerminalRegion:
    """A region of a terminal that is redrawn in place until a line is printed below it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text, self._lines = "", 0  # what is shown, and the lines of the terminal at that time
        self._scrolled_out = False  # whether a terminal that became small has moved a part of the text out of reach
        self.redraws = stream.isatty() and os.environ.get("TERM") != "dumb"  # a dumb one cannot go back
        self.glyphs = _glyphs(stream)

    @property
    def is_open(self) -> bool:
        """Whether something is shown that the next text would replace."""
        return bool(self._text)

    def show(self, text: str, columns: int, lines: int) -> None:
        """Replace what is shown. The cursor stays at the end of the text, or below it if that ends a line."""
        above = self._rows_above(columns)
        self._scrolled_out |= above >= lines
        up, clear = (f"\x1b[{above}A", "\x1b[J") if above else ("", "")
        if self._scrolled_out and lines > self._lines:  # it may have come back
            up, clear = "\x1b[H\x1b[2J", ""
        cleared_lines = "\n".join(f"\x1b[2K{line}" for line in text.split("\n"))
        self._stream.write(f"{up}\r{cleared_lines}{clear}")
        self._stream.flush()
        self._text, self._lines = text, lines

    def print_line(self, line: str) -> None:
        """Write a line that stays; it closes the region."""
        self._stream.write(f"{line}\n")
        self._stream.flush()
        self._text = ""

    def close(self) -> None:
        """Leave what is shown where it is: what is printed next stands below it."""
        if self._text.endswith("\n"):
            self._text = ""
        elif self._text:
            self.print_line("")

    def _rows_above(self, columns: int) -> int:
        """How far the cursor is below the first row: a terminal that became narrower has wrapped the lines."""
        *full_lines, last = (len(_ESCAPES.sub("", line)) for line in self._text.split("\n"))
        return sum(max(1, -(-length // columns)) for length in full_lines) + max(0, last - 1) // columns


def _glyphs(stream: TextIO) -> BarGlyphs:
    """Colours unless NO_COLOR is set to something; blocks if the stream can encode them."""
    colour = not os.environ.get("NO_COLOR")
    blocks = BarGlyphs(colour=colour)
    try:
        f"{blocks.stayed}{blocks.came}{blocks.absent}".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return BarGlyphs(ASCII.stayed, ASCII.came, ASCII.absent, colour)
    return blocks
