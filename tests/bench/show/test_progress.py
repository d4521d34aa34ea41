"""The progress of a run on a terminal: width bars where there is room, one line where there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from meristem_bench.cli import main
from tiny_recipe import tiny_recipe

FRAGILE = """
    if os.path.exists("fragile") and os.path.exists("a/checkpoint.ckpt"):
        raise KeyboardInterrupt if os.path.exists("pressed") else ValueError("x.jpg is damaged")
"""
RECIPE = tiny_recipe(met=FRAGILE)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "progress_recipe.py").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)


def grow(*words: str) -> int:
    return main(["grow", "progress_recipe:tiny", "--out", "a", *words])


@pytest.mark.usefixtures("here")
def test_the_last_bars_stay_and_the_results_stand_below(use_terminal: Any) -> None:
    terminal = use_terminal(90, 40)
    assert grow("--with-dense") == 0
    title, head, costs, gap, group, dense, line, empty, *results = terminal.screen()
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
def test_what_stops_a_run_is_said_below_the_bars(
    pressed: bool, use_terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = use_terminal(90, 40)
    Path("fragile").touch()
    if pressed:
        Path("pressed").touch()
    monkeypatch.setattr("sys.stderr", terminal)
    assert grow() == (130 if pressed else 2)
    group, message = terminal.screen()[4:6]
    assert re.fullmatch(r"0  █+▓+░+  +\d+/24  \+\d+", group)
    assert message.startswith("meristem: stopped;" if pressed else "meristem: tiny: x.jpg is damaged.")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("columns", "lines", "words"), [(59, 40, []), (90, 9, []), (90, 40, ["--plain"])])
def test_where_there_is_no_room_or_no_wish_there_is_one_line(
    columns: int, lines: int, words: list[str], use_terminal: Any
) -> None:
    terminal = use_terminal(columns, lines)
    assert grow(*words) == 0
    assert set(re.findall(r"\x1b\[\d*[A-Za-z]", terminal.getvalue())) == {"\x1b[2K"}
    assert terminal.getvalue().split("\r\x1b[2K")[-1].startswith("epoch 3/3  0:00 left")


@pytest.mark.usefixtures("here")
def test_a_dumb_terminal_gets_a_line_per_epoch(use_terminal: Any, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = use_terminal(150, 40, TERM="dumb")
    assert grow() == 0
    assert "\x1b" not in terminal.getvalue()
    assert [line.split("  ")[0] for line in terminal.cells[1:4]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
