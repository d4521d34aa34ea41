"""``meristem grow --tensorboard``: what TensorBoard reads is what the history holds, whatever happened to the run."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from growing import Growth
from meristem import Budget
from meristem.scalars import scalars
from meristem_bench.cli import main
from meristem_bench.runs.folder import Folder
from meristem_bench.show.graphs import Graphs, budget_scalars
from meristem_bench.show.progress import ProgressDisplay
from meristem_bench.show.tensorboard import TensorBoardWriter
from tiny_recipe import tiny_recipe

RECIPE = tiny_recipe(epochs=4)
Points = dict[str, list[tuple[int, float]]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "board_recipe.py").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)


def grow(*words: str) -> int:
    return main(["grow", "board_recipe:tiny", *words])


def reader(folder: str) -> EventAccumulator:
    return EventAccumulator(folder, size_guidance={"scalars": 0})


def graphs(events: EventAccumulator) -> Points:
    """Every graph as TensorBoard has it: steps and values, as often as they are there."""
    events.Reload()
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def history(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(out, "history.jsonl").read_text().splitlines()]


def leaves(value: Any) -> Iterator[float]:
    for inner in value.values() if isinstance(value, dict) else ():
        yield from leaves(inner)
    if not isinstance(value, dict):
        yield value


def assert_shows(written: Points, records: list[dict[str, Any]], units: float = 24) -> None:
    """Some graphs by name, each epoch once and in order; and in all as many values as the records hold."""
    (group,) = records[0]["widths"]
    expected = {
        "metrics/val_accuracy": [record["metrics"]["val_accuracy"] for record in records],
        "metrics/train_loss": [record["metrics"]["train_loss"] for record in records],
        "cost/params_frac": [record["params_frac"] for record in records],
        "cost/params_planned": [record["planned"]["params"] for record in records],
        "cost/params_budget": [0.36] * len(records),
        "spend/frac": [record["spend_frac"] for record in records],
        "spend/stages/grow": [record["spend_by_stage"]["grow"] for record in records],
        "run/seconds": [record["seconds"] for record in records],
        "run/peak_bytes": [record["peak_bytes"] for record in records],
        f"width/{group}": [record["widths"][group] / units for record in records],
        f"temperature/{group}": [record["temperature"][group] for record in records],
        f"temperature_with_absent/{group}": [record["temperature_with_absent"][group] for record in records],
        f"scores/{group}/max": [record["scores"][group]["max"] for record in records],
        "structure/grown": [record["grown"] for record in records],
        "structure/frozen": [float(record["frozen"]) for record in records],
    }
    for tag, values in expected.items():
        assert [step for step, _ in written[tag]] == [record["epoch"] for record in records], tag
        assert [value for _, value in written[tag]] == pytest.approx(values), tag
    numbers = sum(sum(isinstance(value, int | float) for value in leaves(record)) - 1 for record in records)  # no epoch
    assert sum(map(len, written.values())) == numbers + len(records)  # and the budget


def test_the_graphs_hold_every_value_of_the_history() -> None:
    assert grow("--tensorboard", "--out", "a", "--with-dense") == 0
    assert_shows(graphs(reader("a/tensorboard")), history("a"))
    dense = graphs(reader("a/dense/tensorboard"))
    assert [value for _, value in dense["cost/params_frac"]] == [1.0] * 4


def test_a_run_that_goes_on_does_so_in_the_same_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a killed run had written more than its checkpoint knows, and for who was looking all the time."""
    stopped_after(2, monkeypatch, "--tensorboard", "--out", "a")
    first = history("a")
    assert_shows(graphs(reader("a/tensorboard")), first)
    beyond = {**first[-1], "epoch": 3, "metrics": {"val_accuracy": 7.0, "only_then": 1.0}}
    writer = Graphs(Folder(Path("a")), [TensorBoardWriter()])
    writer.start(*begun(first))
    writer.epoch(beyond)
    writer.close(finished=False)
    looking = reader("a/tensorboard")
    assert graphs(looking)["metrics/val_accuracy"][-1] == (3, 7.0)
    wait_for_another_second(Path("a/tensorboard"))
    assert grow("--resume", "a", "--tensorboard") == 0
    assert_shows(graphs(reader("a/tensorboard")), history("a"))
    seen = graphs(looking)
    assert not seen.pop("metrics/only_then", [])
    assert_shows(seen, history("a"))


def stopped_after(epochs: int, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    show = ProgressDisplay.epoch

    def press(self: ProgressDisplay, record: dict[str, Any]) -> None:
        show(self, record)
        if record["epoch"] == epochs:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressDisplay, "epoch", press)
        assert grow(*words) == 130


def begun(records: list[dict[str, Any]]) -> tuple[Any, Any]:
    """The run of the recipe, and its grower with these records."""
    import board_recipe

    from meristem_bench.runs.training import build

    run = board_recipe.tiny()
    training = build(run, history=None)
    training.grower.history.restart(records)
    return run, training.grower


def wait_for_another_second(folder: Path) -> None:
    """Event files are read in the order of their names, which begin with the second they were made in."""
    latest = max(int(path.name.split(".")[3]) for path in folder.iterdir())
    while time.time() < latest + 1:
        time.sleep(0.05)


def test_a_run_that_is_finished_gets_its_graphs_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    assert grow("--out", "a") == 0
    result = Path("a/result.json").read_bytes()
    assert not Path("a/tensorboard").exists()
    assert grow("--resume", "a", "--tensorboard") == 0
    assert_shows(graphs(reader("a/tensorboard")), history("a"))
    assert Path("a/result.json").read_bytes() == result
    assert "resumed" not in capsys.readouterr().out


@pytest.mark.usefixtures("forked_studies")
def test_every_run_of_several_seeds_has_graphs() -> None:
    """One that was finished before graphs were wanted, one in this process, one in a process of its own."""
    words = ["--epochs", "2", "--out", "out"]
    assert grow("--seeds", "1", *words) == 0
    assert not Path("out/grown-seed0/tensorboard").exists()
    assert grow("--seeds", "2", *words, "--tensorboard") == 0
    assert grow("--seeds", "3", *words, "--tensorboard", "--jobs", "2") == 0
    for seed in range(3):
        assert_shows(graphs(reader(f"out/grown-seed{seed}/tensorboard")), history(f"out/grown-seed{seed}"))


def test_how_to_go_on_says_that_graphs_are_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_after(1, monkeypatch, "--tensorboard", "--plain", "--out", "a")
    assert "grow board_recipe:tiny --resume a --tensorboard --plain\n" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--out", "a"], ["--seeds", "2"]], ids=["one", "seeds"])
def test_without_tensorboard_nothing_is_run(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    before = list(Path().iterdir())
    assert grow(*words, "--tensorboard") == 2
    printed = capsys.readouterr()
    assert printed.err == "meristem: --tensorboard needs a package more: pip install 'meristem[tensorboard]'\n"
    assert not printed.out
    assert list(Path().iterdir()) == before


def test_what_is_no_number_is_left_out(space_of) -> None:
    torch.manual_seed(0)
    growth = Growth("mlp", space_of("mlp"), epochs=2).go()
    odd = {"metrics": {"a": math.nan, "b": math.inf, "c": 0.5}, "seconds": None, "new": 3}
    points = scalars({**growth.grower.records[-1], **odd}, growth.grower.space)
    assert {tag: value for tag, value in points.items() if tag.startswith("metrics/")} == {"metrics/c": 0.5}
    assert "run/seconds" not in points
    assert points["run/new"] == 3.0, "a value that is new in records needs no line here"


def test_the_blocks_of_stages_and_what_an_absent_one_holds(space_of) -> None:
    torch.manual_seed(0)
    space = space_of("deep_residual")
    growth = Growth("deep_residual", space, epochs=2, budget=Budget(params="60%", spend="90%")).go()
    record, absent = growth.grower.records[0], 0
    points = scalars(record, space)
    assert {tag: value for tag, value in points.items() if tag.startswith("blocks/")} == {
        f"blocks/{stage}": count for stage, count in record["blocks"].items()
    }
    for group, block in space.enclosing_block.items():
        present = record["widths"][block]
        absent += not present
        assert points[f"width/{group}"] == (record["widths"][group] / space.full[group] if present else 0.0)
    assert absent
    assert budget_scalars(growth.grower)["spend/budget"] == 0.9
