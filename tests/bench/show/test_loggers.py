"""``meristem grow --wandb --mlflow``: Weights & Biases and MLflow are told what TensorBoard is told, once each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meristem.scalars import scalars
from meristem_bench.cli import main
from meristem_bench.runs.description import read_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.training import build
from meristem_bench.show.graphs import budget_scalars
from meristem_bench.show.progress import ProgressDisplay
from other_libraries import library
from tiny_recipe import tiny_recipe

pytestmark = pytest.mark.filterwarnings("default")  # what these libraries warn of is not ours
EPOCHS = 3


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logged_recipe.py").write_text(tiny_recipe(epochs=EPOCHS))
    monkeypatch.chdir(tmp_path)


def grow(*words: str) -> int:
    return main(["grow", "logged_recipe:tiny", *words])


def history(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(out, "history.jsonl").read_text().splitlines()]


def expected(out: str) -> list[dict[str, float]]:
    """The points of every epoch, from the history of a run."""
    import logged_recipe

    grower = build(read_run(Folder(Path(out)), logged_recipe.tiny().replace(recipe=None)), history=None).grower
    return [{**scalars(record, grower.space), **budget_scalars(grower)} for record in history(out)]


def stopped_after(epochs: int, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    show = ProgressDisplay.epoch

    def press(self: ProgressDisplay, record: dict[str, Any]) -> None:
        show(self, record)
        if record["epoch"] == epochs:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressDisplay, "epoch", press)
        assert grow(*words) == 130


@pytest.mark.parametrize("flag", ["--wandb", "--mlflow"])
def test_without_the_library_nothing_is_run_and_the_extra_is_named(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, flag.strip("-"), None)
    before = list(Path().iterdir())
    assert grow(flag, "--out", "a") == 2
    needs = f"meristem: {flag} needs a package more: pip install 'meristem[{flag.strip('-')}]'\n"
    assert capsys.readouterr().err == needs
    assert list(Path().iterdir()) == before


# --- MLflow ---


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    found = library("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = found.get_tracking_uri()
    found.set_tracking_uri((tmp_path / "store").as_uri())
    yield found
    found.set_tracking_uri(uri)


def told_to_mlflow(mlflow: Any, out: str) -> tuple[Any, list[dict[str, float]]]:
    """A run of MLflow, and its points, each of which may be there once."""
    client, name = mlflow.MlflowClient(), json.loads(Path(out, "mlflow.json").read_text())["run"]
    run, points = client.get_run(name), [dict[str, float]() for _ in range(EPOCHS)]
    for key in run.data.metrics:
        for point in client.get_metric_history(name, key):
            assert key not in points[point.step - 1]
            points[point.step - 1][key] = point.value
    return run, points


def test_mlflow_has_every_number_of_a_run_that_was_stopped_and_went_on(
    mlflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after(2, monkeypatch, "--mlflow", "--out", "a")
    assert told_to_mlflow(mlflow, "a")[0].info.status == "KILLED"
    assert grow("--resume", "a", "--mlflow") == 0
    run, points = told_to_mlflow(mlflow, "a")
    assert points == [pytest.approx(epoch) for epoch in expected("a")]
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "a"
    assert (run.data.params["recipe"], run.data.params["lr"]) == ("tiny", "0.1")
    assert grow("--resume", "a", "--mlflow") == 0  # has nothing more to tell
    assert told_to_mlflow(mlflow, "a")[1] == points


def test_what_mlflow_refuses_is_one_sentence(mlflow: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mlflow.set_tracking_uri("nowhere://x")
    assert grow("--mlflow", "--out", "a") == 2
    error = capsys.readouterr().err
    assert error.startswith("meristem: --mlflow: MLflow cannot take the run (")
    assert error.count("\n") == 1


# --- Weights & Biases ---


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    found = library("wandb")
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "of wandb"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    return found


def records_of(file: bytes) -> Iterator[bytes]:
    """What a file in the format of LevelDB's logs holds, after a header of W&B's own: pieces of 32-KiB blocks."""
    place, found = 7, b""
    while place + 7 <= len(file):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        size, kind = int.from_bytes(file[place + 4 : place + 6], "little"), file[place + 6]
        found += file[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield found
            found = b""


def told_to_wandb(wandb: Any, out: str) -> tuple[str, dict[str, Any], list[dict[str, float]]]:
    """The name of a run of W&B, its settings, and its points: of the files of an offline run, as `wandb sync` has."""
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # its service writes the file in its own time, at the latest when it ends
    name, settings, points = "", dict[str, Any](), list[dict[str, float]]()
    for path in sorted(Path(out).glob("wandb/offline-run-*/run-*.wandb")):
        for data in records_of(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                name = record.run.run_id
                settings.update({each.key: json.loads(each.value_json) for each in record.run.config.update})
            if record.HasField("history"):
                items = record.history.item
                points.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return name, settings, points


def test_wandb_has_every_number_of_a_run_and_its_settings(wandb: Any) -> None:
    assert grow("--wandb", "--out", "a") == 0
    name, settings, points = told_to_wandb(wandb, "a")
    assert name == json.loads(Path("a/wandb.json").read_text())["run"]
    assert (settings["recipe"], settings["lr"], settings["budget"]) == ("tiny", 0.1, "params=36%")
    assert [point["_step"] for point in points] == [1, 2, 3]
    for point, epoch in zip(points, expected("a"), strict=True):
        assert {key: value for key, value in point.items() if "/" in key} == pytest.approx(epoch)


def test_a_run_that_goes_on_is_the_same_one_for_wandb(wandb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_after(2, monkeypatch, "--wandb", "--out", "a")
    name = told_to_wandb(wandb, "a")[0]
    assert grow("--resume", "a", "--wandb") == 0
    assert told_to_wandb(wandb, "a")[0] == name
    assert told_to_wandb(wandb, "a")[2][-1]["_step"] == EPOCHS


def test_wandb_without_a_login_is_one_sentence(
    wandb: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    wandb.teardown()  # settings of the tests before
    assert grow("--wandb", "--out", "a") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("meristem: --wandb: Weights & Biases cannot begin a run (")
    assert error.endswith("log in by `wandb login`, or set WANDB_MODE=offline")
