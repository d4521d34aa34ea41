"""The picture of a network that grows: a bar for the width of every group, under the numbers of the run. Pure text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_COLUMNS, LEAST_LINES = 60, 10  # of a terminal that has room for a picture
_LONGEST_BAR = 64
_CHANGE = len("+12 -12")  # room that is always kept, so that bars do not jump


@dataclass(frozen=True)
class Row:
    """A group, or several together: live and full units, and how many came and went in the last step."""

    name: str
    live: int
    full: int
    came: int = 0
    gone: int = 0


@dataclass(frozen=True)
class Picture:
    numbers: tuple[str, ...]  # the most important first
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Ink:
    """What bars are made of: units that stayed, units that came, absent ones; the latter two coloured or not."""

    stayed: str = "█"
    came: str = "▓"
    absent: str = "░"
    colour: bool = False


LETTERS = Ink("#", "+", ".")  # for terminals that cannot write blocks
_GREEN, _DIM, _RESET = "\x1b[32m", "\x1b[2m", "\x1b[0m"


def draw(picture: Picture, columns: int, lines: int, ink: Ink) -> list[str]:
    """Lines for a terminal of this size, which has room for a picture; one of its own is left for the cursor.

    >>> rows = Row("stem", 3, 8, came=1), Row("stages.0.conv1", 8, 8)
    >>> for line in draw(Picture(("epoch 1/2", "loss 0.300"), rows), 60, 10, LETTERS):
    ...     print(line)
    epoch 1/2  loss 0.300
    <BLANKLINE>
    stem            #######++++..................  3/8  +1
    stages.0.conv1  #############################  8/8
    """
    head = flowed(picture.numbers, columns - 1)[: lines // 2]
    room = lines - 1 - len(head)
    rows = merged(picture.rows, room)
    gap = [""] if len(rows) < room else []
    return [*head, *gap, *bars(rows, columns - 1, ink)]


def flowed(words: Sequence[str], width: int) -> list[str]:
    """In as many lines as are needed, each word whole if it can be.

    >>> flowed(["epoch 1/2", "loss 0.3", "spend 3 %"], 20)
    ['epoch 1/2  loss 0.3', 'spend 3 %']
    """
    found: list[str] = []
    for word in words:
        if found and len(found[-1]) + 2 + len(word) <= width:
            found[-1] = f"{found[-1]}  {word}"
        else:
            found.append(word[:width])
    return found


# --- fewer rows where there is no room for all --------------------------------------------------------------------


def merged(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many: rows whose names begin alike are joined, the deepest first; neighbours where that is not enough.

    >>> found = merged([Row("stem", 1, 4), Row("a.0.conv1", 2, 4), Row("a.0.conv2", 1, 4), Row("a.1.conv1", 1, 8)], 3)
    >>> [(row.name, row.live, row.full) for row in found]
    [('stem', 1, 4), ('a.0.*', 3, 8), ('a.1.conv1', 1, 8)]
    >>> [row.name for row in merged([Row(f"conv{number}", 1, 2) for number in range(5)], 2)]
    ['conv0 +2', 'conv3 +1']
    """
    found = list(rows)
    depth = max((row.name.count(".") for row in rows), default=0)
    while len(found) > most:
        fewer = _joined_by_prefix(rows, depth) if depth > 0 else []
        if 2 * len(fewer) < most:  # so few would say too little
            size = -(-len(found) // most)
            return [_joined(found[first : first + size]) for first in range(0, len(found), size)]
        found, depth = fewer, depth - 1
    return found


def _joined_by_prefix(rows: Sequence[Row], depth: int) -> list[Row]:
    """Neighbours whose names share their first so many parts become one row."""
    found = []
    for parts, alike in itertools.groupby(rows, lambda row: row.name.split(".")[:depth]):
        several = list(alike)
        found.append(several[0] if len(several) == 1 else _sum(f"{'.'.join(parts)}.*", several))
    return found


def _joined(rows: Sequence[Row]) -> Row:
    return rows[0] if len(rows) == 1 else _sum(f"{rows[0].name} +{len(rows) - 1}", rows)


def _sum(name: str, rows: Sequence[Row]) -> Row:
    live, full = sum(row.live for row in rows), sum(row.full for row in rows)
    return Row(name, live, full, sum(row.came for row in rows), sum(row.gone for row in rows))


# --- rows as text -------------------------------------------------------------------------------------------------


def bars(rows: Sequence[Row], width: int, ink: Ink) -> list[str]:
    """Name, bar, live and full units, and what came and went: in columns."""
    if not rows:
        return []
    counts = [f"{row.live}/{row.full}" for row in rows]
    changes = [" ".join([f"+{row.came}"] * bool(row.came) + [f"-{row.gone}"] * bool(row.gone)) for row in rows]
    count, change = max(map(len, counts)), max(_CHANGE, *map(len, changes))
    name = min(max(len(row.name) for row in rows), width // 3)
    cells = max(1, min(_LONGEST_BAR, width - name - count - change - 6))
    return [
        f"{_named(row.name, name)}  {bar(row, cells, ink)}  {counted:>{count}}  {changed}".rstrip()
        for row, counted, changed in zip(rows, counts, changes, strict=True)
    ]


def bar(row: Row, cells: int, ink: Ink) -> str:
    """The live units' share of the cells; what there is of a kind is seen, however little, where there are cells."""
    live = _share(row.live, row.full, cells)
    came = _share(row.came, row.live, live)
    parts = [(ink.stayed, live - came, ""), (ink.came, came, _GREEN), (ink.absent, cells - live, _DIM)]
    return "".join(
        f"{colour}{glyph * length}{_RESET}" if ink.colour and colour else glyph * length
        for glyph, length, colour in parts
        if length
    )


def _share(part: int, whole: int, cells: int) -> int:
    """Cells for a part of a whole: none for none, all for all, and something for both of two parts."""
    if part in (0, whole) or cells < 2:
        return cells if part and 2 * part >= whole else 0
    return min(cells - 1, max(1, round(cells * part / whole)))


def _named(name: str, width: int) -> str:
    """Its end says more than its beginning. One column a character, whatever the terminal makes of others."""
    name = re.sub(r"[^ -~]", "?", name)
    return f"{name:{width}}" if len(name) <= width else f"..{name[2 - width :]}"
