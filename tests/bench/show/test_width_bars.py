"""Width bars as text: they fit every terminal and lose no unit."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from meristem_bench.show.width_bars import ASCII, BarGlyphs, WidthBars, WidthRow, draw_bar, draw_width_bars, merge_rows

names = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)


@st.composite
def rows(draw: st.DrawFn) -> WidthRow:
    full = draw(st.integers(1, 5000))
    live = draw(st.integers(0, full))
    return WidthRow(draw(names), live, full, draw(st.integers(0, live)), draw(st.integers(0, full - live)))


@given(
    groups=st.lists(rows(), max_size=120),
    numbers=st.lists(st.text("abc %", min_size=1, max_size=90), max_size=9),
    columns=st.integers(60, 200),
    lines=st.integers(10, 60),
)
@pytest.mark.parametrize("glyphs", [BarGlyphs(), BarGlyphs(colour=True), ASCII], ids=["blocks", "colour", "letters"])
def test_the_bars_fit_every_terminal(
    groups: list[WidthRow], numbers: list[str], columns: int, lines: int, glyphs: BarGlyphs
) -> None:
    drawn = draw_width_bars(WidthBars(tuple(numbers), tuple(groups)), columns, lines, glyphs)
    assert len(drawn) < lines
    for line in drawn:
        assert len(re.sub(r"\x1b\[\d+m", "", line)) < columns


@given(groups=st.lists(rows(), min_size=1, max_size=120), most=st.integers(1, 60))
def test_joined_rows_lose_no_unit(groups: list[WidthRow], most: int) -> None:
    merged = merge_rows(groups, most)
    assert len(merged) <= most
    for count in ("live", "full", "came", "gone"):
        assert sum(getattr(row, count) for row in merged) == sum(getattr(row, count) for row in groups)
    if len(groups) <= most:
        assert merged == groups


@given(row=rows(), cells=st.integers(3, 64))
def test_a_bar_shows_whatever_there_is(row: WidthRow, cells: int) -> None:
    drawn = draw_bar(row, cells, ASCII)
    assert len(drawn) == cells
    assert ("." in drawn) == (row.live < row.full)
    assert ("." * cells == drawn) == (row.live == 0)
    assert drawn == "".join(sorted(drawn, key="#+.".index))
    if len(drawn.rstrip(".")) > 1:
        assert ("+" in drawn) == (row.came > 0)
        assert ("#" in drawn) == (row.came < row.live)


BLOCKS = [f"{stage}.{block}" for stage in range(3) for block in range(2)]
NETWORK = (
    WidthRow("stem.0", 8, 16),
    *(WidthRow(f"stages.{each}.conv{layer}", 6, 16, came=2, gone=1) for each in BLOCKS for layer in (1, 2)),
)


def test_where_there_is_no_room_for_all_groups_their_blocks_and_stages_are_shown() -> None:
    assert [row.name for row in merge_rows(NETWORK, 12)] == [
        "stem.0",
        *(f"stages.{each}.*" for each in BLOCKS),
    ]
    assert merge_rows(NETWORK, 6) == [
        WidthRow("stem.0", 8, 16),
        *(WidthRow(f"stages.{s}.*", 24, 64, 8, 4) for s in range(3)),
    ]
    # One row for all stages would say little: neighbours are joined instead.
    plain = tuple(WidthRow(f"blocks.{number}.fc", 1, 4) for number in range(12))
    assert [row.name for row in merge_rows(plain, 5)] == [f"blocks.{first}.fc +2" for first in (0, 3, 6, 9)]


def test_the_bars_line_by_line() -> None:
    numbers = ("epoch 3/9  step 4/10", "0:12 left", "accuracy 90.0 %", "params 10.0 % (plan 11.0 %, budget 36.0 %)")
    assert draw_width_bars(WidthBars(numbers, NETWORK), 60, 10, BarGlyphs()) == [
        "epoch 3/9  step 4/10  0:12 left  accuracy 90.0 %",
        "params 10.0 % (plan 11.0 %, budget 36.0 %)",
        "stem.0        ██████████████░░░░░░░░░░░░░░░   8/16",
        *(f"stages.{each}.*  ███████▓▓▓▓░░░░░░░░░░░░░░░░░░  12/32  +4 -2" for each in BLOCKS),
    ]
    coloured = draw_width_bars(WidthBars((), NETWORK[:2]), 60, 10, BarGlyphs(colour=True))[-1]
    assert coloured == "stages.0.0.conv1  ███████\x1b[32m▓▓▓\x1b[0m\x1b[2m░░░░░░░░░░░░░░░░\x1b[0m  6/16  +2 -1"


def test_names_of_any_kind_keep_their_column() -> None:
    odd = (WidthRow("größe", 1, 2), WidthRow("a.very.long.name.of.a.group.deep.inside", 1, 2))
    drawn = draw_width_bars(WidthBars((), odd), 60, 10, ASCII)
    assert drawn[1].startswith("gr??e                #")
    assert drawn[2].startswith("..group.deep.inside  #")
