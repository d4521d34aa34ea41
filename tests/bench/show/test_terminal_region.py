"""The region of a terminal that is redrawn in place, also on one that is resized."""

from __future__ import annotations

import io
from typing import Any

from bench.show.fake_terminal import FakeTerminal
from meristem_bench.show.terminal_region import TerminalRegion
from meristem_bench.show.width_bars import ASCII, BarGlyphs


def lines_of(number: int, width: int) -> str:
    return "".join(f"{str(number) * width}\n" for _ in range(number))


def test_each_text_stands_in_the_place_of_the_last() -> None:
    terminal = FakeTerminal(80, 12)
    region = TerminalRegion(terminal)
    for number in range(20):
        region.print_line(f"before {number}")
    for number, width in ((4, 10), (9, 79), (2, 79), (6, 1)):
        region.show(lines_of(number, width), 80, 12)
        assert terminal.screen()[-1] == ""
        assert terminal.cells == [f"before {n}" for n in range(20)] + lines_of(number, width).split("\n")
    region.show("one line", 80, 12)
    assert terminal.cells[20:] == ["one line"]
    region.close()
    region.close()
    region.print_line("after")
    assert terminal.cells[20:] == ["one line", "after", ""]


def test_a_terminal_that_is_resized_shows_nothing_but_the_text_and_what_was_before() -> None:
    terminal = FakeTerminal(100, 30)
    region = TerminalRegion(terminal)
    region.print_line("before")
    for columns, lines, number, width in ((100, 30, 9, 99), (70, 30, 8, 69), (120, 30, 9, 99)):
        terminal.resize(columns, lines)
        region.show(lines_of(number, width), columns, lines)
        assert terminal.cells == ["before", *lines_of(number, width).split("\n")]
    # So low that the beginning scrolls out of reach; when there is room again, what comes back is cleared away.
    terminal.resize(60, 10)
    region.show(lines_of(5, 59), 60, 10)
    assert terminal.screen()[:6] == lines_of(5, 59).split("\n")
    terminal.resize(100, 30)
    region.show(lines_of(9, 99), 100, 30)
    assert [line for line in terminal.screen() if line] == lines_of(9, 99).split("\n")[:-1]


def test_no_color_and_streams_that_cannot_encode_blocks(use_terminal: Any) -> None:
    assert TerminalRegion(use_terminal(90, 40)).glyphs == BarGlyphs(colour=True)
    assert TerminalRegion(use_terminal(90, 40, NO_COLOR="1")).glyphs == BarGlyphs()
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert TerminalRegion(ascii_only).glyphs == ASCII
