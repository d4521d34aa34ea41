"""A run's folder is read as far as it goes; a sentence says what is missing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meristem.errors import FileError
from meristem_bench.report.experiments import group_by_experiment, spread
from meristem_bench.report.page_text import legible
from meristem_bench.report.run_reader import read_reported_run, read_runs


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "study" / "a", tmp_path / "run"))


def test_a_whole_run_lacks_nothing(run: Path) -> None:
    reported = read_reported_run(run)
    assert reported.missing == ()
    assert reported.epochs.tolist() == [1, 2, 3, 4, 5, 6]
    assert reported.caps == {"params": 0.4}
    assert reported.column("metrics", "train_loss")[1] == 1.0
    assert reported.result is not None
    for module, width, full, _ in reported.layers:
        assert 1 <= width <= full, module


def test_layers_are_those_of_the_last_epoch(run: Path) -> None:
    reported = read_reported_run(run)
    widths = {module: width for module, width, *_ in reported.layers}
    assert widths["stages.0.0.conv1"] == reported.records[-1]["widths"]["stages.0.0.conv1"]


def test_a_run_without_result_says_how_far_it_is(run: Path) -> None:
    (run / "result.json").unlink()
    assert any("6 of 6 epochs are there, and no test result" in sentence for sentence in read_reported_run(run).missing)


def test_a_line_that_is_being_written_is_no_damage(run: Path) -> None:
    text = (run / "history.jsonl").read_text()
    (run / "history.jsonl").write_text(text + '{"epoch": 7, "wid')
    reported = read_reported_run(run)
    assert (len(reported.records), reported.missing) == (6, ())


def test_damaged_lines_are_left_out_and_named(run: Path) -> None:
    lines = (run / "history.jsonl").read_text().splitlines()
    lines[1], lines[3] = "\x00garbage", "[1, 2]"
    (run / "history.jsonl").write_text("\n".join(lines) + "\n")
    reported = read_reported_run(run)
    assert reported.epochs.tolist() == [1, 3, 5, 6]
    assert reported.missing == ("Damaged lines of history.jsonl are left out: 2, 4.",)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "meristem-space-1"}', '{"format": "other"}'])
def test_a_damaged_outline_is_done_without(run: Path, content: str) -> None:
    (run / "space.json").write_text(content)
    reported = read_reported_run(run)
    assert reported.outline is None
    assert reported.layers == []
    assert any("The outline of the full network is not there" in sentence for sentence in reported.missing)
    assert max(reported.full.values()) == max(reported.records[-1]["widths"].values()) or reported.full


def test_a_history_alone_is_enough(run: Path) -> None:
    for name in ("run.json", "result.json", "space.json"):
        (run / name).unlink()
    reported = read_reported_run(run)
    assert len(reported.records) == 6
    assert any("What was run is not known" in sentence for sentence in reported.missing)


def test_a_run_that_has_just_begun(run: Path) -> None:
    (run / "history.jsonl").write_text("")
    reported = read_reported_run(run)
    assert "No epoch is finished yet." in reported.missing
    assert reported.layers == []


def test_records_of_another_shape_do_no_harm(run: Path) -> None:
    odd = [{"epoch": 1, "widths": None, "metrics": [1]}, {"epoch": "x"}, {"epoch": 2, "widths": {"a": "b"}}, {}]
    (run / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in odd))
    reported = read_reported_run(run)
    assert reported.epochs.tolist() == [1, 2]
    assert np.isnan(reported.column("metrics", "train_loss")).all()


def test_no_run_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no folder; give the folder of a run"):
        read_runs([tmp_path / "nothing"])
    with pytest.raises(FileError, match="there is no run in"):
        read_runs([tmp_path])


def test_folders_with_runs_in_them_are_searched(runs: Path) -> None:
    assert [reported.path.name for reported in read_runs([runs / "study"])] == ["a", "b", "c", "d"]
    assert len(read_runs([runs / "study", runs / "study" / "a"])) == 4


def test_seeds_are_put_together_and_the_rest_is_named_by_what_differs(runs: Path) -> None:
    experiments = group_by_experiment(read_runs([runs / "study"]))
    assert [(experiment.title, len(experiment.runs)) for experiment in experiments] == [
        ("grown, params=40%", 2),
        ("grown, params=70%", 1),
        ("uniform, params=40%", 1),
    ]
    first, second = (run.column("params_frac") for run in experiments[0].runs)
    assert np.allclose(experiments[0].column("params_frac").mean, (first + second) / 2)


def rewritten(run: Path, **changes: object) -> None:
    content = json.loads((run / "run.json").read_text())
    settings = {**content["settings"], **changes.pop("settings", {})}  # type: ignore[dict-item]
    (run / "run.json").write_text(json.dumps({**content, "settings": settings, **changes}))


def test_a_model_of_the_users_own_is_another_experiment(runs: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(runs / "study" / "b", tmp_path / "b"))
    rewritten(other, network="my.models:wide")
    titles = [experiment.title for experiment in group_by_experiment(read_runs([runs / "study" / "a", other]))]
    assert titles == ["tiny", "tiny, my.models:wide"]


def test_settings_that_were_not_known_then_make_no_other_experiment(runs: Path, tmp_path: Path) -> None:
    newer = Path(shutil.copytree(runs / "study" / "b", tmp_path / "b"))
    rewritten(newer, settings={"fine_tune": 0, "unroll": 0})
    assert len(group_by_experiment(read_runs([runs / "study" / "a", newer]))) == 1


def test_training_at_equal_cost_is_another_experiment_whichever_run_set_the_cost(runs: Path, tmp_path: Path) -> None:
    names = ("first", "second")
    equal = [Path(shutil.copytree(runs / "study" / "d", tmp_path / name)) for name in names]
    for seed, run in enumerate(equal):
        rewritten(run, settings={"cost_of": f"/runs/grown-seed{seed}", "seed": seed})
    experiments = group_by_experiment(read_runs([runs / "study", *equal]))
    assert [(experiment.title, len(experiment.runs)) for experiment in experiments][2:] == [
        ("uniform, params=40%", 1),
        ("uniform at equal cost, params=40%", 2),
    ]
    (equal[0] / "result.json").unlink()
    assert any("going on: 6 epochs are there" in sentence for sentence in read_reported_run(equal[0]).missing)


def test_epochs_of_fine_tuning_count(run: Path) -> None:
    (run / "result.json").unlink()
    rewritten(run, settings={"epochs": 4, "fine_tune": 3})
    assert any("6 of 7 epochs are there" in sentence for sentence in read_reported_run(run).missing)


def test_runs_of_different_length_meet_by_epoch(runs: Path, tmp_path: Path) -> None:
    short = Path(shutil.copytree(runs / "study" / "b", tmp_path / "b"))
    lines = (short / "history.jsonl").read_text().splitlines(keepends=True)
    (short / "history.jsonl").write_text("".join(lines[:2]))
    experiment = group_by_experiment(read_runs([runs / "study" / "a", short]))[0]
    values = experiment.column("params_frac")
    assert values.deviation[2:].tolist() == [0.0] * 4
    assert np.isfinite(values.mean).all()


def test_the_spread_of_nothing_is_unknown() -> None:
    assert not spread(np.full((2, 3), np.nan)).has_values
    assert spread(np.array([1.0, 3.0])).deviation == pytest.approx(2**0.5)


# --- damage of every kind ---


def changed(run: Path, file: str, **parts: Any) -> None:
    content = json.loads((run / file).read_text())
    (run / file).write_text(json.dumps({**content, **parts}))


@pytest.mark.parametrize("settings", [[], "x", None, -1])
def test_settings_of_another_shape_are_not_known(run: Path, settings: Any) -> None:
    changed(run, "run.json", settings=settings, name=None)
    reported = read_reported_run(run)
    assert (reported.settings, reported.name, reported.caps) == ({}, "run", {})
    assert any("settings in" in sentence and "are damaged" in sentence for sentence in reported.missing)


@pytest.mark.parametrize("budget", ["params=-5%", "params=1e400,macs=7", "=,%", {"a": 1}, 3])
def test_a_budget_that_means_nothing_caps_nothing(run: Path, budget: Any) -> None:
    changed(run, "run.json", settings={"budget": budget})
    changed(run, "space.json", params=[0, 0], macs=[1, None])
    assert read_reported_run(run).caps == {}


@pytest.mark.parametrize(
    "group",
    [{"units": 0}, {"units": None}, {"units": 1e308}, {"params_frac": "x"}, {"makers": [[1]]}, {"name": "other"}],
)
def test_an_outline_with_a_damaged_group_is_done_without(run: Path, group: dict[str, Any]) -> None:
    first, *others = json.loads((run / "space.json").read_text())["groups"]
    changed(run, "space.json", groups=[{**first, **group}, *others])
    assert read_reported_run(run).outline is None


@pytest.mark.parametrize("layer", [{"out": {"size": 4, "terms": [[1, ["no"]]]}}, {"stage": 1e400}, {"module": None}])
def test_an_outline_with_a_damaged_layer_is_done_without(run: Path, layer: dict[str, Any]) -> None:
    first, *others = json.loads((run / "space.json").read_text())["layers"]
    changed(run, "space.json", layers=[{**first, **layer}, *others])
    assert read_reported_run(run).outline is None


def test_widths_that_the_outline_does_not_know_are_named(run: Path) -> None:
    (run / "history.jsonl").write_text(json.dumps({"epoch": 1, "widths": {"other": 3}}) + "\n")
    reported = read_reported_run(run)
    assert (reported.layers, reported.width_groups) == ([], [])
    assert any("does not have are left out: other." in sentence for sentence in reported.missing)
    assert any("The final network is not drawn" in sentence for sentence in reported.missing)


def test_an_outline_without_layers_draws_no_network(run: Path) -> None:
    changed(run, "space.json", layers=[])
    assert any("The final network is not drawn" in sentence for sentence in read_reported_run(run).missing)


def test_every_epoch_has_one_record(run: Path) -> None:
    epochs = [2, 1, 2, -1, 0, 1.5, 10**400, None]
    lines = [json.dumps({"epoch": epoch, "seconds": place}) for place, epoch in enumerate(epochs)]
    (run / "history.jsonl").write_text("\n".join(lines) + "\n")
    reported = read_reported_run(run)
    assert (reported.epochs.tolist(), reported.column("seconds").tolist()) == ([1, 2], [1, 2])
    assert "Records that name no epoch are left out: 5." in reported.missing
    assert "Some epochs have several records: the last of each is taken." in reported.missing


def test_json_that_is_nested_without_end_is_damage(run: Path) -> None:
    for name in ("run.json", "result.json", "space.json"):
        (run / name).write_text("[" * 100_000)
    (run / "history.jsonl").write_text("[" * 100_000 + "\n" + '{"epoch": 1}\n')
    reported = read_reported_run(run)
    assert (reported.epochs.tolist(), reported.outline, reported.result) == ([1], None, None)


def test_numbers_beyond_all_measure_are_not_known(run: Path) -> None:
    changed(run, "result.json", params=10**400, params_frac=1e308, macs_frac=None, test=[])
    (experiment,) = group_by_experiment([read_reported_run(run)])
    for path in (("params",), ("params_frac",), ("macs_frac",), ("test", "accuracy")):
        assert np.isnan(experiment.finals(*path)).all()


def test_a_run_is_read_once_however_its_path_is_written(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(runs / "study")
    (tmp_path / "link2").symlink_to(tmp_path / "link2")
    assert len(read_runs([runs / "study", runs / "deep" / ".." / "study", tmp_path / "link" / "a"])) == 4


def test_a_folder_that_cannot_be_looked_into_is_named(runs: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "closed").mkdir()
    scan = os.scandir

    def refusing(path: Path) -> Any:  # a test may be run by one whom nothing is closed to
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    remarks: list[str] = []
    assert len(read_runs([run], remarks)) == 1
    assert remarks == [f"Folders that cannot be looked into are left out: {legible(str(run / 'closed'), 60)}."]


def test_runs_of_which_only_the_history_is_left_keep_titles_of_their_own(run: Path, tmp_path: Path) -> None:
    for place in ("x", "y"):
        (tmp_path / place / "same").mkdir(parents=True)
        shutil.copy(run / "history.jsonl", tmp_path / place / "same")
    experiments = group_by_experiment(read_runs([run, tmp_path / "x", tmp_path / "y"]))
    assert [experiment.title for experiment in experiments] == ["tiny", "same (same)", "same (same) 2"]


def test_any_text_becomes_legible() -> None:
    assert legible("a\n\ud800\x00b").encode() == "a\ufffd\ufffd\ufffdb".encode()
    assert len(legible("long" * 100, 60)) == 60
