"""Runs that are fine-tuned after growing: stopped and resumed, their learning rate, what they show and leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import meristem
from meristem.errors import MeristemError
from meristem_bench.cli import main
from meristem_bench.data.arrays import Arrays
from meristem_bench.runs import FineTuning, Machine, OptimizerConfig, Run
from meristem_bench.runs.description import read_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import run_to_end
from meristem_bench.runs.lr_schedule import Constant, Steps
from meristem_bench.runs.task import Classification
from meristem_bench.runs.training import lr_factor
from meristem_bench.show.progress import ProgressDisplay
from watching import Watch, traces

RECIPE = f"{__name__}:tiny"


def sorting(run: Run) -> Arrays:
    inputs = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    parts = {"train": slice(0, 32), "validation": slice(32, 64), "test": slice(64, 96)}
    return Arrays({name: (inputs[part], inputs[part, :3].argmax(1)) for name, part in parts.items()})


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))


def tiny() -> Run:
    return Run(
        name="tiny",
        about="Tiny.",
        model=network,
        load=sorting,
        task=Classification(),
        epochs=4,
        batch=16,
        optimizer=OptimizerConfig(lr=0.1),
        fine_tuning=FineTuning(epochs=2),
        machine=Machine(threads=1),
    )


def until(*at: int) -> Watch:
    """Stops a run when so many epochs are done and so many steps of the next."""
    return Watch(lambda *now: now == at)


@pytest.mark.parametrize("method", ["default", "paper"])
def test_a_stopped_run_goes_on_with_the_same_bits(method: str, tmp_path: Path) -> None:
    whole, wanted = Folder(tmp_path / "whole"), tiny().replace(method=method)
    result = run_to_end(wanted, whole, Watch())
    assert (result["epochs"], result["fine_tune"]) == (4, 2)
    assert result["full"]["spend_macs"] == 3 * 6 * 32 * result["full"]["macs"]  # epochs, samples
    for at in ((3, 1), (4, 0), (4, 1), (5, 0), (6, 0)) if method == "default" else ((4, 0), (5, 1)):
        folder = Folder(tmp_path / str(at))
        with pytest.raises(KeyboardInterrupt):
            run_to_end(wanted, folder, until(*at))
        torch.manual_seed(123)
        run_to_end(read_run(folder, tiny()), folder, Watch())
        assert traces(folder) == traces(whole), at


def test_the_learning_rate_starts_anew() -> None:
    """Eight steps of growing, four of fine-tuning: the same curve again, or another, from the same start or another."""

    def rates(**changes: Any) -> list[float]:
        return [lr_factor(tiny().replace(**changes), step, 8) for step in range(12)]

    steps = Steps(10, (0.5, 0.75))
    assert rates(rate=steps)[8:] == pytest.approx([1.0, 1.0, 0.1, 0.01])
    assert rates(rate=Constant(), fine_tune_rate=steps, fine_tune_lr=0.01) == pytest.approx(
        [1.0] * 8 + [0.1, 0.1, 0.01, 0.001]
    )
    assert rates(warmup=2.0)[8] == 1.0, "warm already"
    assert rates()[:8] == rates(fine_tune=0)[:8]
    for wrong in ({"fine_tune": 0, "fine_tune_lr": 0.1}, {"fine_tune": 0, "fine_tune_rate": steps}):
        with pytest.raises(MeristemError, match="are of a fine-tuning, but fine_tune is 0 epochs"):
            rates(**wrong)
    settings = tiny().replace(fine_tune_rate=steps).settings
    assert tiny().with_settings(json.loads(json.dumps(settings))).settings == settings


def test_a_run_that_was_begun_before_there_was_fine_tuning_goes_on(tmp_path: Path) -> None:
    folder, old = Folder(tmp_path), tiny().replace(fine_tune=0)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(old, folder, until(2, 0))
    told = json.loads(folder.description.read_text())
    told["settings"] = {name: value for name, value in told["settings"].items() if "fine_tune" not in name}
    folder.description.write_text(json.dumps(told))
    assert read_run(folder, tiny()).fine_tuning.epochs == 0, "as it was begun, whatever the recipe has today"
    assert run_to_end(read_run(folder, tiny()), folder, Watch())["epochs"] == 4


def test_it_is_shown_and_its_network_can_be_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [RECIPE, "--out", "run", "--set", "fine_tune=3", "--with-dense"]
    assert main(["grow", *words]) == 0
    shown = capsys.readouterr().out
    assert "4 epochs and 3 of fine-tuning" in shown
    assert "epoch 4/7" in shown
    assert [line.count("fine-tuning") for line in shown.splitlines() if line.startswith("epoch")] == 2 * [
        0,
        0,
        0,
        0,
        1,
        1,
        1,
    ]
    assert main(["evaluate", "run", "--recipe", RECIPE]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert all(float(now) == pytest.approx(float(then), abs=2e-6) for _, now, then in lines)
    stopped = Folder(tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        run_to_end(tiny(), stopped, until(5, 0))
    assert main(["export", "stopped", "--out", "out", "--recipe", RECIPE]) == 0
    assert "after epoch 5 of 6" in capsys.readouterr().out
    meristem.load("out", network())


def test_a_method_without_a_plan_shows_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    for method, shows in (("default", True), ("paper", False)):
        few = tiny().replace(epochs=1, fine_tune=0, method=method)
        run_to_end(few, Folder(tmp_path / method), ProgressDisplay(sys.stdout))
        assert ("plan" in capsys.readouterr().out) is shows


def test_a_sweep_needs_no_budgets_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sweep", RECIPE, "--out", "out"]
    assert main([*words, "--arms", "grown,direct", "--method", "search", "--set", "budget=params=40%"]) == 0
    grown, direct = (
        json.loads(Path(f"out/params=40%/{arm}-seed0/result.json").read_text()) for arm in ("grown", "direct")
    )
    assert direct["widths"] == grown["widths"]
    assert direct["fine_tune"] == 2
    together = (grown["spend_macs"] + direct["spend_macs"]) / direct["full"]["spend_macs"]
    assert direct["total_spend_frac"] == pytest.approx(together)
    assert grown["total_spend_frac"] == grown["spend_frac"]
    assert main([*words, "--by", "macs"]) == 2
