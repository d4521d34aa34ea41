"""The picture of a run on a terminal: what is drawn, and that it is drawn in place."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from growing import Growth
from meristem.history import live_blocks
from meristem_bench.cli import main
from meristem_bench.runs.metric import metric
from meristem_bench.show.picture import LETTERS, Ink, Picture, Row, bar, draw, merged
from meristem_bench.show.screen import Screen
from meristem_bench.show.sketch import Sketch
from tiny_recipe import tiny_recipe

FRAGILE = """
    if os.path.exists("fragile") and os.path.exists("a/checkpoint.ckpt"):
        raise KeyboardInterrupt if os.path.exists("pressed") else ValueError("x.jpg is damaged")
"""
RECIPE = tiny_recipe(met=FRAGILE)


class Terminal(io.StringIO):
    """Does what the codes that are used here ask for: a real one in few lines. Lines that scroll out are kept."""

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


# --- what is drawn ---


names = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    full = draw(st.integers(1, 5000))
    live = draw(st.integers(0, full))
    return Row(draw(names), live, full, draw(st.integers(0, live)), draw(st.integers(0, full - live)))


@given(
    groups=st.lists(rows(), max_size=120),
    numbers=st.lists(st.text("abc %", min_size=1, max_size=90), max_size=9),
    columns=st.integers(60, 200),
    lines=st.integers(10, 60),
)
@pytest.mark.parametrize("ink", [Ink(), Ink(colour=True), LETTERS], ids=["blocks", "colour", "letters"])
def test_a_picture_fits_every_terminal(
    groups: list[Row], numbers: list[str], columns: int, lines: int, ink: Ink
) -> None:
    drawn = draw(Picture(tuple(numbers), tuple(groups)), columns, lines, ink)
    assert len(drawn) < lines
    for line in drawn:
        assert len(re.sub(r"\x1b\[\d+m", "", line)) < columns


@given(groups=st.lists(rows(), min_size=1, max_size=120), most=st.integers(1, 60))
def test_joined_rows_lose_no_unit(groups: list[Row], most: int) -> None:
    found = merged(groups, most)
    assert len(found) <= most
    for count in ("live", "full", "came", "gone"):
        assert sum(getattr(row, count) for row in found) == sum(getattr(row, count) for row in groups)
    if len(groups) <= most:
        assert found == groups


@given(row=rows(), cells=st.integers(3, 64))
def test_a_bar_shows_whatever_there_is(row: Row, cells: int) -> None:
    drawn = bar(row, cells, LETTERS)
    assert len(drawn) == cells
    assert ("." in drawn) == (row.live < row.full)
    assert ("." * cells == drawn) == (row.live == 0)
    assert drawn == "".join(sorted(drawn, key="#+.".index))
    if len(drawn.rstrip(".")) > 1:
        assert ("+" in drawn) == (row.came > 0)
        assert ("#" in drawn) == (row.came < row.live)


BLOCKS = [f"{stage}.{block}" for stage in range(3) for block in range(2)]
NETWORK = (
    Row("stem.0", 8, 16),
    *(Row(f"stages.{each}.conv{layer}", 6, 16, came=2, gone=1) for each in BLOCKS for layer in (1, 2)),
)


def test_where_there_is_no_room_for_all_groups_their_blocks_and_stages_are_shown() -> None:
    assert [row.name for row in merged(NETWORK, 12)] == [
        "stem.0",
        *(f"stages.{each}.*" for each in BLOCKS),
    ]
    assert merged(NETWORK, 6) == [Row("stem.0", 8, 16), *(Row(f"stages.{s}.*", 24, 64, 8, 4) for s in range(3))]
    # One row for all stages would say little: neighbours are joined instead.
    plain = tuple(Row(f"blocks.{number}.fc", 1, 4) for number in range(12))
    assert [row.name for row in merged(plain, 5)] == [f"blocks.{first}.fc +2" for first in (0, 3, 6, 9)]


def test_a_picture_line_by_line() -> None:
    numbers = ("epoch 3/9  step 4/10", "0:12 left", "accuracy 90.0 %", "params 10.0 % (plan 11.0 %, budget 36.0 %)")
    assert draw(Picture(numbers, NETWORK), 60, 10, Ink()) == [
        "epoch 3/9  step 4/10  0:12 left  accuracy 90.0 %",
        "params 10.0 % (plan 11.0 %, budget 36.0 %)",
        "stem.0        ██████████████░░░░░░░░░░░░░░░   8/16",
        *(f"stages.{each}.*  ███████▓▓▓▓░░░░░░░░░░░░░░░░░░  12/32  +4 -2" for each in BLOCKS),
    ]
    coloured = draw(Picture((), NETWORK[:2]), 60, 10, Ink(colour=True))[-1]
    assert coloured == "stages.0.0.conv1  ███████\x1b[32m▓▓▓\x1b[0m\x1b[2m░░░░░░░░░░░░░░░░\x1b[0m  6/16  +2 -1"


def test_names_of_any_kind_keep_their_column() -> None:
    odd = (Row("größe", 1, 2), Row("a.very.long.name.of.a.group.deep.inside", 1, 2))
    drawn = draw(Picture((), odd), 60, 10, LETTERS)
    assert drawn[1].startswith("gr??e                #")
    assert drawn[2].startswith("..group.deep.inside  #")


# --- in place ---


def lines_of(number: int, width: int) -> str:
    return "".join(f"{str(number) * width}\n" for _ in range(number))


def test_each_picture_stands_in_the_place_of_the_last() -> None:
    glass = Terminal(80, 12)
    screen = Screen(glass)
    for number in range(20):
        screen.say(f"before {number}")
    for number, width in ((4, 10), (9, 79), (2, 79), (6, 1)):
        screen.show(lines_of(number, width), 80, 12)
        assert glass.screen()[-1] == ""
        assert glass.cells == [f"before {n}" for n in range(20)] + lines_of(number, width).split("\n")
    screen.show("one line", 80, 12)
    assert glass.cells[20:] == ["one line"]
    screen.leave()
    screen.leave()
    screen.say("after")
    assert glass.cells[20:] == ["one line", "after", ""]


def test_a_terminal_that_is_resized_shows_nothing_but_the_picture_and_what_was_before() -> None:
    glass = Terminal(100, 30)
    screen = Screen(glass)
    screen.say("before")
    for columns, lines, number, width in ((100, 30, 9, 99), (70, 30, 8, 69), (120, 30, 9, 99)):
        glass.resize(columns, lines)
        screen.show(lines_of(number, width), columns, lines)
        assert glass.cells == ["before", *lines_of(number, width).split("\n")]
    # So low that the beginning scrolls out of reach; when there is room again, what comes back is cleared away.
    glass.resize(60, 10)
    screen.show(lines_of(5, 59), 60, 10)
    assert glass.screen()[:6] == lines_of(5, 59).split("\n")
    glass.resize(100, 30)
    screen.show(lines_of(9, 99), 100, 30)
    assert [line for line in glass.screen() if line] == lines_of(9, 99).split("\n")[:-1]


# --- a run on a terminal ---


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A terminal of some size that is the standard output."""

    def made(columns: int, lines: int, **environment: str) -> Terminal:
        size = {"COLUMNS": str(columns), "LINES": str(lines)}
        for name, value in {"TERM": "xterm", "NO_COLOR": "", **size, **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdout", glass := Terminal(columns, lines))
        return glass

    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "picture_recipe.py").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)


def grow(*words: str) -> int:
    return main(["grow", "picture_recipe:tiny", "--out", "a", *words])


@pytest.mark.usefixtures("here")
def test_the_last_picture_stays_and_the_results_stand_below(terminal: Any) -> None:
    glass = terminal(90, 40)
    assert grow("--with-dense") == 0
    title, head, costs, gap, group, dense, line, empty, *results = glass.screen()
    assert title.startswith("tiny: budget params 36%")
    assert re.fullmatch(r"epoch 3/3  0:00 left  accuracy [\d.]+ %  loss [\d.]+  spend [\d.]+ %", head)
    assert re.fullmatch(r"params 3\d\.\d % \(plan 36\.0 %, budget 36\.0 %\)  width 33\.3 %", costs)
    assert re.fullmatch(r"0  █+░+  8/24", group)
    assert dense.startswith("tiny: the full model"), "whose bars would say nothing"
    assert line.startswith("epoch 3/3  0:00 left  accuracy")
    assert gap == empty == ""
    assert results[1].startswith("test accuracy")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("pressed", [True, False], ids=["Ctrl-C", "damaged data"])
def test_what_stops_a_run_is_told_below_the_picture(
    pressed: bool, terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    glass = terminal(90, 40)
    Path("fragile").touch()
    if pressed:
        Path("pressed").touch()
    monkeypatch.setattr("sys.stderr", glass)
    assert grow() == (130 if pressed else 2)
    group, told = glass.screen()[4:6]
    assert re.fullmatch(r"0  █+▓+░+  +\d+/24  \+\d+", group)
    assert told.startswith("meristem: stopped;" if pressed else "meristem: tiny: x.jpg is damaged.")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("columns", "lines", "words"), [(59, 40, []), (90, 9, []), (90, 40, ["--plain"])])
def test_where_there_is_no_room_or_no_wish_there_is_one_line(
    columns: int, lines: int, words: list[str], terminal: Any
) -> None:
    glass = terminal(columns, lines)
    assert grow(*words) == 0
    assert set(re.findall(r"\x1b\[\d*[A-Za-z]", glass.getvalue())) == {"\x1b[2K"}
    assert glass.getvalue().split("\r\x1b[2K")[-1].startswith("epoch 3/3  0:00 left")


@pytest.mark.usefixtures("here")
def test_a_dumb_terminal_gets_a_line_an_epoch(terminal: Any, capsys: pytest.CaptureFixture[str]) -> None:
    glass = terminal(150, 40, TERM="dumb")
    assert grow() == 0
    assert "\x1b" not in glass.getvalue()
    assert [line.split("  ")[0] for line in glass.cells[1:4]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]


def test_no_color_and_streams_that_know_no_blocks(terminal: Any) -> None:
    assert Screen(terminal(90, 40)).ink == Ink(colour=True)
    assert Screen(terminal(90, 40, NO_COLOR="1")).ink == Ink()
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert Screen(ascii_only).ink == LETTERS


def test_rows_of_an_absent_block_are_empty_and_come_with_it(space_of) -> None:
    """On a network whose blocks come and go: bars are what takes part, and only of units that have a width."""
    torch.manual_seed(0)
    space = space_of("deep_residual")
    growth = Growth("deep_residual", space, "random", epochs=7, steps=1)
    sketch, absent, came = Sketch(growth.grower), 0, 0
    for _ in range(7):
        before = {row.name: row for row in sketch.rows}
        growth.step()
        sketch.step({**growth.grower.records[-1], "metrics": {"train_loss": 1.0}}, metric("accuracy"))
        assert [row.name for row in sketch.rows] == [name for name in space.groups if name not in space.blocks]
        for row in sketch.rows:
            block = space.enclosing_block.get(row.name)
            present = block is None or growth.grower.widths[block]
            assert row.live == (growth.grower.widths[row.name] if present else 0)
            assert row.live == before[row.name].live + row.came - row.gone
            absent += not present
            came += block is not None and bool(row.live) and not before[row.name].live
        blocks = "-".join(map(str, live_blocks(space, growth.grower.live.masks).values()))
        assert sketch.numbers[-1] == f"blocks {blocks} of 3-2-2"
    assert absent
    assert came
