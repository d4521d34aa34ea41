"""A terminal for tests: does what the escape codes ask for, and remembers what it shows."""

from __future__ import annotations

import io
import re


class FakeTerminal(io.StringIO):
    """Does what the codes that the library uses ask for: a real one in few lines. Lines that scroll out are kept."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__()
        self.columns, self.lines = columns, lines
        self.cells, self.row, self.column, self.top = [""], 0, 0, 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for code, number, kind, letter in re.findall(r"(\x1b\[(\d*)([A-Za-z]))|([^\x1b])", text):
            if code:
                self.obey(int(number or 0), kind)
            elif letter == "\r":
                self.column = 0
            elif letter == "\n":
                self.down()
            else:
                if self.column == self.columns:  # the line wraps
                    self.down()
                line = self.cells[self.row].ljust(self.column)
                self.cells[self.row] = line[: self.column] + letter + line[self.column + 1 :]
                self.column += 1
        return super().write(text)

    def down(self) -> None:
        self.row, self.column = self.row + 1, 0
        self.cells += [""] * (self.row == len(self.cells))
        self.top = max(self.top, self.row - self.lines + 1)

    def obey(self, number: int, kind: str) -> None:
        if kind == "A":
            self.row = max(self.top, self.row - number)
        elif kind == "H":
            self.row, self.column = self.top, 0
        elif (number, kind) == (2, "K"):
            self.cells[self.row] = ""
        elif (number, kind) == (2, "J"):
            self.cells[self.top :] = [""] * (len(self.cells) - self.top)
        elif kind == "J":
            self.cells[self.row + 1 :] = []
            self.cells[self.row] = self.cells[self.row][: self.column]
        else:
            assert kind == "m", (number, kind)

    def resize(self, columns: int, lines: int) -> None:
        """Long lines are wrapped, and what is above the last lines scrolls out."""
        wrapped, row = [], 0
        for number, line in enumerate(self.cells):
            row = len(wrapped) if number == self.row else row
            wrapped += [line[first : first + columns] for first in range(0, max(1, len(line)), columns)]
        self.columns, self.lines, self.cells, self.row = columns, lines, wrapped, row
        self.top = max(0, row - lines + 1)

    def screen(self) -> list[str]:
        return [line.rstrip() for line in self.cells[self.top :]]
