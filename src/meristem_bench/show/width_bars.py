"""The network as text: a bar for the width of every group, under the numbers of the run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

MIN_COLUMNS, MIN_LINES = 60, 10  # of a terminal that has room for bars
_LONGEST_BAR = 64
_CHANGE = len("+12 -12")  # room that is always kept, so that bars do not jump


@dataclass(frozen=True)
class WidthRow:
    """A group, or several together: live and full units, and how many came and went in the last step."""

    name: str
    live: int
    full: int
    came: int = 0
    gone: int = 0


@dataclass(frozen=True)
class WidthBars:
    """What is drawn: the numbers of the run, the most important first, and a row per group."""

    numbers: tuple[str, ...]
    rows: tuple[WidthRow, ...]


@dataclass(frozen=True)
class BarGlyphs:
    """The characters of a bar: units that stayed, units that came, absent ones; the latter two coloured or not."""

    stayed: str = "█"
    came: str = "▓"
    absent: str = "░"
    colour: bool = False


ASCII = BarGlyphs("#", "+", ".")  # for streams that cannot encode blocks
_GREEN, _DIM, _RESET = "\x1b[32m", "\x1b[2m", "\x1b[0m"


def draw_width_bars(bars: WidthBars, columns: int, lines: int, glyphs: BarGlyphs) -> list[str]:
    """Lines for a terminal of this size; its last line is left for the cursor.

    >>> rows = WidthRow("stem", 3, 8, came=1), WidthRow("stages.0.conv1", 8, 8)
    >>> for line in draw_width_bars(WidthBars(("epoch 1/2", "loss 0.300"), rows), 60, 10, ASCII):
    ...     print(line)
    epoch 1/2  loss 0.300
    <BLANKLINE>
    stem            #######++++..................  3/8  +1
    stages.0.conv1  #############################  8/8
    """
    head = wrap(bars.numbers, columns - 1)[: lines // 2]
    room = lines - 1 - len(head)
    rows = merge_rows(bars.rows, room)
    gap = [""] if len(rows) < room else []
    return [*head, *gap, *row_lines(rows, columns - 1, glyphs)]


def wrap(words: Sequence[str], width: int) -> list[str]:
    """The words in as many lines as are needed, each word whole if it can be.

    >>> wrap(["epoch 1/2", "loss 0.3", "spend 3 %"], 20)
    ['epoch 1/2  loss 0.3', 'spend 3 %']
    """
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] = f"{lines[-1]}  {word}"
        else:
            lines.append(word[:width])
    return lines


# --- fewer rows where there is no room for all --------------------------------------------------------------------


def merge_rows(rows: Sequence[WidthRow], most: int) -> list[WidthRow]:
    """At most so many rows: those that share a prefix become one, the deepest first; neighbours if that is not enough.

    >>> rows = [WidthRow("stem", 1, 4), WidthRow("a.0.conv1", 2, 4), WidthRow("a.0.conv2", 1, 4)]
    >>> [(row.name, row.live, row.full) for row in merge_rows([*rows, WidthRow("a.1.conv1", 1, 8)], 3)]
    [('stem', 1, 4), ('a.0.*', 3, 8), ('a.1.conv1', 1, 8)]
    >>> [row.name for row in merge_rows([WidthRow(f"conv{number}", 1, 2) for number in range(5)], 2)]
    ['conv0 +2', 'conv3 +1']
    """
    merged = list(rows)
    depth = max((row.name.count(".") for row in rows), default=0)
    while len(merged) > most:
        fewer = _merge_by_prefix(rows, depth) if depth > 0 else []
        if 2 * len(fewer) < most:  # so few would say too little
            size = -(-len(merged) // most)
            return [_merge_neighbours(merged[first : first + size]) for first in range(0, len(merged), size)]
        merged, depth = fewer, depth - 1
    return merged


def _merge_by_prefix(rows: Sequence[WidthRow], depth: int) -> list[WidthRow]:
    """Neighbours whose names share their first ``depth`` parts become one row."""
    merged = []
    for prefix, same_prefix in itertools.groupby(rows, lambda row: row.name.split(".")[:depth]):
        several = list(same_prefix)
        merged.append(several[0] if len(several) == 1 else _sum(f"{'.'.join(prefix)}.*", several))
    return merged


def _merge_neighbours(rows: Sequence[WidthRow]) -> WidthRow:
    return rows[0] if len(rows) == 1 else _sum(f"{rows[0].name} +{len(rows) - 1}", rows)


def _sum(name: str, rows: Sequence[WidthRow]) -> WidthRow:
    live, full = sum(row.live for row in rows), sum(row.full for row in rows)
    return WidthRow(name, live, full, sum(row.came for row in rows), sum(row.gone for row in rows))


# --- rows as text -------------------------------------------------------------------------------------------------


def row_lines(rows: Sequence[WidthRow], width: int, glyphs: BarGlyphs) -> list[str]:
    """Name, bar, live and full units, and what came and went: in columns."""
    if not rows:
        return []
    counts = [f"{row.live}/{row.full}" for row in rows]
    changes = [" ".join([f"+{row.came}"] * bool(row.came) + [f"-{row.gone}"] * bool(row.gone)) for row in rows]
    count_width, change_width = max(map(len, counts)), max(_CHANGE, *map(len, changes))
    name_width = min(max(len(row.name) for row in rows), width // 3)
    cells = max(1, min(_LONGEST_BAR, width - name_width - count_width - change_width - 6))
    return [
        f"{_fit_name(row.name, name_width)}  {draw_bar(row, cells, glyphs)}  {count:>{count_width}}  {change}".rstrip()
        for row, count, change in zip(rows, counts, changes, strict=True)
    ]


def draw_bar(row: WidthRow, cells: int, glyphs: BarGlyphs) -> str:
    """The live units' share of the cells; every kind that is there is seen, however few, if there are cells for it."""
    live = _share(row.live, row.full, cells)
    came = _share(row.came, row.live, live)
    parts = [(glyphs.stayed, live - came, ""), (glyphs.came, came, _GREEN), (glyphs.absent, cells - live, _DIM)]
    return "".join(
        f"{colour}{glyph * length}{_RESET}" if glyphs.colour and colour else glyph * length
        for glyph, length, colour in parts
        if length
    )


def _share(part: int, whole: int, cells: int) -> int:
    """Cells for a part of a whole: none for none, all for all, and at least one for both of two parts."""
    if part in (0, whole) or cells < 2:
        return cells if part and 2 * part >= whole else 0
    return min(cells - 1, max(1, round(cells * part / whole)))


def _fit_name(name: str, width: int) -> str:
    """The end of a name, which says more than its beginning; one column per character on every terminal."""
    name = re.sub(r"[^ -~]", "?", name)
    return f"{name:{width}}" if len(name) <= width else f"..{name[2 - width :]}"
