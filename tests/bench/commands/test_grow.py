"""``meristem grow``, ``list`` and ``export``: what users see, also when something is wrong."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import meristem
from growing import timeless
from meristem.history import Record
from meristem_bench.cli import main
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.recipes.lookup import find_run
from meristem_bench.show.progress import ProgressDisplay
from meristem_bench.show.result_tables import result_table
from tiny_recipe import SLOW, tiny_recipe

OTHERS = """
def wrong():
    return 3

def failing():
    return {}["x"]
"""
RECIPE = tiny_recipe(met=SLOW, more=OTHERS)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with a recipe of the user's own."""
    (tmp_path / "users_recipe.py").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def grow(*words: str) -> int:
    return main(["grow", "users_recipe:tiny", *words])


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence with which a command line is refused."""
    capsys.readouterr()
    before = sorted(Path().rglob("*"))
    assert main(list(words)) == 2
    streams = capsys.readouterr()
    assert streams.err.startswith("meristem: ")
    assert streams.err.count("\n") == 1
    assert sorted(path for path in Path().rglob("*") if path.name != "runs" and "__pycache__" not in str(path)) == [
        path for path in before if path.name != "runs" and "__pycache__" not in str(path)
    ], "nothing is made, nothing is lost"
    return streams.err.removeprefix("meristem: ").strip()


def recorded(path: str) -> list[Record]:
    """What a run has recorded, without what depends on the machine."""
    return timeless([json.loads(line) for line in Path(path).read_text().splitlines()])


# --- what is shown ---


def test_the_default_recipe_runs_without_any_argument(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["grow", "--epochs", "1", "--set", "batch=400"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("digits: budget params 36%")
    for wanted in ("epoch 1/1", "loss", "accuracy", "width", "(plan", "spend", "left"):
        assert wanted in shown
    for row in ("test accuracy", "parameters", "macs per sample", "macs of training", "savings", "time"):
        assert re.search(rf"^{row} ", shown, re.MULTILINE)
    assert "not trained" in shown
    assert "Everything is in runs/digits-seed0; the network itself in runs/digits-seed0/model\n" in shown
    assert shown.endswith("To draw it: meristem report runs/digits-seed0\n")
    small = meristem.load("runs/digits-seed0/model", ResNetCifar(14, 10, 1, 16))
    result = json.loads(Path("runs/digits-seed0/result.json").read_text())
    assert sum(parameter.numel() for parameter in small.parameters()) == result["params"]


def test_runs_do_not_overwrite_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert grow("--seed", "4") == 0
    assert sorted(os.listdir("runs")) == ["tiny-seed4", "tiny-seed4-2"]
    assert recorded("runs/tiny-seed4/history.jsonl") == recorded("runs/tiny-seed4-2/history.jsonl")
    error = refused(capsys, "grow", "users_recipe:tiny", "--out", "runs/tiny-seed4")
    assert (
        error == "runs/tiny-seed4 holds another run; go on with it by --resume runs/tiny-seed4, or give another --out"
    )


def test_the_full_model_beside_the_grown_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert grow("--out", "both", "--with-dense") == 0
    shown = capsys.readouterr().out
    assert "tiny: the full model" in shown
    assert "not trained" not in shown
    assert "points" in shown
    assert grow("--out", "alone", "--method", "dense") == 0
    assert recorded("both/dense/history.jsonl") == recorded("alone/history.jsonl")


def test_the_full_model_can_be_trained_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    assert grow("--out", "a b") == 0
    (again,) = re.findall(r"^To train the full model for comparison: (.*)$", capsys.readouterr().out, re.MULTILINE)
    kept = Path("a b/checkpoint.ckpt").read_bytes()
    assert main(shlex.split(again)[1:]) == 0
    assert "points" in capsys.readouterr().out
    assert Path("a b/checkpoint.ckpt").read_bytes() == kept
    assert main(["grow", "users_recipe:tiny", "--resume", "a b"]) == 0
    assert "points" in capsys.readouterr().out, "what was trained once is shown again"


def test_settings_reach_the_run() -> None:
    words = ["--epochs", "2", "--seed", "7", "--budget", "params=50%,macs=60%", "--method", "random", "--device", "cpu"]
    assert grow(*words, "--set", "lr=0.05", "--set", "momentum=0.8", "--out", "run", "--data", ".") == 0
    settings = json.loads(Path("run/run.json").read_text())["settings"]
    expected = {
        "epochs": 2,
        "seed": 7,
        "budget": "params=50%,macs=60%",
        "method": "random",
        "device": "cpu",
        "lr": 0.05,
    }
    assert settings.items() >= {**expected, "momentum": 0.8, "data_dir": str(Path().resolve())}.items()


def test_the_list_names_recipes_and_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for name in ("digits", "resnet20-cifar10", *meristem.methods.METHODS):
        assert re.search(rf"^  {name} +[A-Z].*\.$", shown, re.MULTILINE), name


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(epoch: int) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "metrics": {"train_loss": 0.5, "val_accuracy": 0.9},
        "widths": {"a": 2, "b": 1},
        "planned": {"params": 0.2, "macs": 0.3},
        "params_frac": 0.19,
        "macs_frac": 0.28,
        "spend_frac": 0.1,
    }


def test_a_terminal_sees_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown, run = Terminal(), find_run("users_recipe:tiny")
    progress = ProgressDisplay(shown, plain=True)
    space = meristem.trace(run.model(), torch.randn(2, 6))
    attributes = {"epoch": 1, "expected_spend_frac": 0.25, "space": space, "method": meristem.Method()}
    attributes["expected_costs"] = {"macs": (0.1, 0.7)}
    grower = type("Grower", (), attributes)
    progress.start(run, grower)  # type: ignore[arg-type]
    head = shown.getvalue()
    assert head.splitlines()[1:] == [
        "The budget leaves macs free: the final network will have about 10.0 % to 70.0 % of them",
        "resumed after epoch 1",
    ]
    progress.batch(1, 2)
    progress.epoch(record(2))
    progress.batch(1, 2)
    progress.epoch(record(3))
    line = shown.getvalue().removeprefix(head)
    assert line.count("\n") == 1
    assert line.endswith("\n")
    last = line.split("\r\x1b[2K")[-1]
    assert "epoch 3/3  0:00 left  accuracy 90.0 %  params 19.0 % (plan 20.0 %)  macs 28.0 % (plan 30.0 %)" in last
    assert "spend 10.0 %  loss 0.500  width 12.5 %" in last
    monkeypatch.setenv("COLUMNS", "40")
    progress.epoch(record(2))
    assert len(shown.getvalue().split("\r\x1b[2K")[-1]) < 40
    progress.end()
    progress.end()
    assert shown.getvalue().endswith("%\n") or shown.getvalue().count("\n") == head.count("\n") + 2


# --- stopping and going on ---


def interrupted(monkeypatch: pytest.MonkeyPatch, *words: str, after: int = 2) -> None:
    """Start a run and press Ctrl-C when ``after`` epochs are done."""
    show = ProgressDisplay.epoch

    def press(self: ProgressDisplay, record: dict[str, Any]) -> None:
        show(self, record)
        if record["epoch"] == after:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressDisplay, "epoch", press)
        assert grow(*words) == 130


def kill_after(epochs: int, out: str, *words: str) -> None:
    """Start a run in a process of its own and kill it, without a chance to do anything, when it has some epochs."""
    Path("slow").touch()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "meristem", "grow", "users_recipe:tiny", "--out", out, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    history = Path(out, "history.jsonl")
    while not history.exists() or history.read_bytes().count(b"\n") < epochs:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()
    Path("slow").unlink()


def test_a_killed_run_and_a_stopped_run_go_on_with_the_same_bits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ["--epochs", "8", "--budget", "params=50%"]
    kill_after(3, "killed", *long)
    assert not Path("killed/result.json").exists()
    interrupted(monkeypatch, "--out", "it's stopped", *long)
    error = capsys.readouterr().err
    (again,) = re.findall(r"^meristem: stopped; every finished epoch is kept\. To go on: (.*)$", error, re.MULTILINE)
    assert main(shlex.split(again)[1:]) == 0
    assert "resumed after epoch 2" in capsys.readouterr().out
    assert grow("--resume", "killed") == 0
    assert grow("--out", "whole", *long) == 0
    for name in ("killed", "it's stopped"):
        assert recorded(f"{name}/history.jsonl") == recorded("whole/history.jsonl")
        assert Path(name, "model/model.safetensors").read_bytes() == Path("whole/model/model.safetensors").read_bytes()


def test_resume_without_a_folder_takes_the_latest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no run runs/tiny-seed0 to go on with" in refused(capsys, "grow", "users_recipe:tiny", "--resume")
    interrupted(monkeypatch)
    capsys.readouterr()
    assert grow("--resume") == 0
    assert "resumed after epoch 2" in capsys.readouterr().out
    interrupted(monkeypatch, "--out", "elsewhere")
    assert grow("--out", "elsewhere", "--resume") == 0


def test_ctrl_c_before_the_first_step_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("meristem_bench.runs.machine.usable_device", press)
    assert grow("--out", "run") == 130
    assert "stopped before the first step; nothing is left behind" in capsys.readouterr().err
    assert not Path("run").exists()


def test_a_run_in_use_is_left_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch, "--out", "run")
    from meristem_bench.runs.folder import Folder

    with Folder(Path("run")).lock():
        assert "another process is running in run" in refused(capsys, "grow", "users_recipe:tiny", "--resume", "run")


# --- taking the network out ---


def test_export_at_any_time(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch, "--out", "run")
    import users_recipe  # the run has found it in the current folder

    assert main(["export", "run", "--out", "small", "--recipe", "users_recipe:tiny"]) == 0
    assert "The network after epoch 2 of 3 is in small" in capsys.readouterr().out
    meristem.load("small", users_recipe.network())
    history = Path("run/history.jsonl").read_bytes()
    assert "small exists already" in refused(capsys, "export", "run", "--out", "small", "--recipe", "users_recipe:tiny")
    error = refused(capsys, "export", "run", "--out", "other")
    assert error == "run holds a run of 'tiny', which is no recipe of meristem: name it by --recipe MODULE:FUNCTION"
    assert Path("run/history.jsonl").read_bytes() == history
    assert grow("--resume", "run") == 0
    assert main(["export", "run", "--out", "final"]) == 0
    assert Path("final/model.safetensors").read_bytes() == Path("run/model/model.safetensors").read_bytes()


def test_export_of_what_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "export", "nowhere", "--out", "x") == "nowhere is no folder; give the folder of a run"
    Path("empty").mkdir()
    assert "is not the folder of a run: it holds no run.json" in refused(capsys, "export", "empty", "--out", "x")


# --- what is refused ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("digit", r"there is no recipe 'digit'; did you mean digits or digits-dense\? There are: digits, .* or MODULE"),
        ("no_such_module:tiny", "the recipe: cannot import 'no_such_module'"),
        ("users_recipe:none", "the recipe: 'users_recipe' has no 'none'"),
        ("users_recipe:", "the recipe 'users_recipe:' is not of the form MODULE:FUNCTION"),
        ("users_recipe:wrong", "the recipe users_recipe:wrong returned int, expected a Run"),
        ("users_recipe:failing", r"the recipe users_recipe:failing failed \(KeyError: 'x'\)"),
        ("--epochs ten", "epochs must be a whole number, got 'ten'"),
        ("--epochs 0", "epochs must be at least 1, got 0"),
        ("--epochs -3", "epochs must be at least 1, got -3"),
        ("--seed x", "seed must be a whole number, got 'x'"),
        ("--method papr", r"there is no method 'papr'; did you mean paper"),
        ("--device warp", "the device 'warp' cannot be used here"),
        ("--set lrr=1", r"a run has no setting 'lrr'; did you mean lr\?"),
        ("--set lr", "--set 'lr' is not of the form FIELD=VALUE"),
        ("--epochs 3 --set epochs=4", "epochs is given twice: 3 and 4"),
        ("--budget weights=3%", "the budget 'weights=3%' is not of the form"),
        ("--budget params=a", "'a' is not an amount"),
        ("--budget params=300%", "'300%' is not an amount"),
        ("--budget params=0.001%", "cannot be met: the smallest network of this space has"),
        ("--data nowhere", "the data folder .*nowhere does not exist"),
        ("resnet20-cifar10", "resnet20-cifar10: give the folder that holds CIFAR-10: --data DIR"),
        ("resnet20-cifar10 --data .", "resnet20-cifar10: .* holds no cifar-10-batches-py"),
        ("--out users_recipe.py", r"users_recipe.py cannot be made \(File exists\); give another --out"),
        ("--out .", r"\. is not empty \(.* lies there\); give another --out"),
        ("--out /proc/x", "/proc/x cannot be made"),
        ("--resume nowhere", "nowhere is no folder; give the folder of a run"),
        ("--resume .", r"\. is not the folder of a run: it holds no run.json"),
        ("--resume a --out b", "a run goes on where it is: leave out --out b"),
        ("--set batch=5000", "a batch of 5000 is larger than the 1201 training samples"),
    ],
)
def test_bad_input_is_told_in_one_sentence(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(message, refused(capsys, "grow", *words.split()))


def test_a_run_does_not_go_on_with_other_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch, "--out", "run")
    tiny = ("grow", "users_recipe:tiny", "--resume", "run")
    assert refused(capsys, *tiny, "--epochs", "9") == (
        "the run in run was started with epochs=3, not 9: leave that out to go on with it, "
        "or start a new run with another --out"
    )
    assert "was started with budget=params=36%, not params=50%" in refused(capsys, *tiny, "--budget", "params=50%")
    assert "holds a run of 'tiny', not of 'digits'" in refused(capsys, "grow", "digits", "--resume", "run")
    assert refused(capsys, "grow", "--resume", "run") == (
        "run holds a run of 'tiny', which is no recipe of meristem: meristem grow MODULE:FUNCTION --resume run"
    )
    good = Path("run/checkpoint.ckpt").read_bytes()
    Path("run/checkpoint.ckpt").write_bytes(good[:-5])
    assert "checkpoint.ckpt is damaged" in refused(capsys, *tiny)
    Path("run/checkpoint.ckpt").write_bytes(good)
    assert grow("--resume", "run", "--epochs", "3", "--data", ".") == 0


def test_the_table_of_a_dense_run_calls_it_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert grow("--method", "dense", "--out", "run", "--with-dense") == 0
    assert "To train the full model" not in capsys.readouterr().out
    assert result_table(json.loads(Path("run/result.json").read_text()), None).split()[:3] == ["dense", "full", "share"]


# --- a model of the user's own, and evaluating what came out ---

MODELS = """
from torch import nn

def wide():
    return nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3))

def needs(width):
    return nn.Linear(6, width)

def number():
    return 3

def fails():
    return {}["weights"]

def narrow():
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2))

class Two(nn.Sequential):
    def forward(self, x):
        return super().forward(x), x

def pair():
    return Two(*wide())

finished = wide()
"""


def test_a_model_of_the_users_own_goes_through_a_recipe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "users_models.py").write_text(MODELS)
    model = ["--model", "users_models:wide"]
    assert grow(*model, "--out", "a", "--with-dense") == 0
    result = json.loads(Path("a/result.json").read_text())
    assert result["full"]["params"] == 6 * 40 + 40 + 40 * 3 + 3
    assert list(result["widths"].values()) == [14]
    # What a file says is never imported: the model has to be named again, and be the same.
    for words in (["--resume", "a"], ["--resume", "a", "--model", "users_recipe:network"]):
        error = refused(capsys, "grow", "users_recipe:tiny", *words)
        assert "was started with --model users_models:wide: say so again" in error
    assert grow(*model, "--resume", "a") == 0
    assert main(["export", "a", "--out", "b", "--recipe", "users_recipe:tiny", *model]) == 0
    capsys.readouterr()
    assert main(["evaluate", "a", "--recipe", "users_recipe:tiny", *model]) == 0
    for line in capsys.readouterr().out.splitlines()[1:]:
        _, now, then = line.split()
        assert now == then
    for name, message in (
        ("needs", "--model: users_models:needs must be callable without arguments"),
        ("number", "--model: users_models:number returned int, expected an nn.Module"),
        ("absent", "--model: 'users_models' has no 'absent'"),
        ("fails", "--model: users_models:fails failed (KeyError: 'weights')"),
    ):
        assert message in refused(capsys, "grow", "users_recipe:tiny", "--model", f"users_models:{name}")


def test_outputs_that_do_not_fit_the_labels_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "users_models.py").write_text(MODELS)
    for name, message in (
        ("narrow", "a label is 2, but the model has 2 outputs, for labels from 0 to 1; give it as many outputs as"),
        ("pair", "the model returned a tuple, but one tensor with a score for each class is needed"),
    ):
        assert grow("--model", f"users_models:{name}", "--out", name) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_finished_model_begins_every_run_as_it_was(here: Path) -> None:
    """The full model that is trained beside the grown one is the full one, though both are made from one object."""
    (here / "users_models.py").write_text(MODELS)
    assert grow("--model", "users_models:finished", "--out", "a", "--with-dense") == 0
    result, dense = (json.loads(Path(name).read_text()) for name in ("a/result.json", "a/dense/result.json"))
    assert dense["params"] == result["full"]["params"] > result["params"]


def test_a_number_of_classes_for_a_model_that_takes_none(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "grow", "users_recipe:tiny", "--set", "classes=3")
    assert error == "tiny: its model has a fixed number of classes; leave out classes"


def test_what_a_folder_says_is_never_imported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "trap.py").write_text("open('sprung', 'w').close()")
    assert grow("--out", "a") == 0
    description = json.loads(Path("a/run.json").read_text())
    Path("a/run.json").write_text(json.dumps({**description, "name": "trap:recipe"}))
    shutil.rmtree("a/model")
    for words in (["grow", "--resume", "a"], ["evaluate", "a"], ["export", "a", "--out", "b"]):
        assert "holds a run of 'trap:recipe', which is no recipe of meristem" in refused(capsys, *words)
    assert not Path("sprung").exists()


def test_a_file_that_breaks_in_the_middle_is_told_with_how_to_go_on(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = RECIPE.replace("    return inputs", BREAKS)
    (here / "breaking_recipe.py").write_text(source)
    assert grow("--out", "whole") == 0
    Path("fragile").touch()
    assert main(["grow", "breaking_recipe:tiny", "--out", "a b"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("meristem: tiny: x.jpg is damaged. Every finished epoch is kept; once that is fixed: ")
    Path("fragile").unlink()
    assert main([*shlex.split(error.split("fixed: ")[1])[1:], "--set", "workers=1"]) == 0, "reading is no part of it"
    assert recorded("a b/history.jsonl") == recorded("whole/history.jsonl")


BREAKS = """    if os.path.exists("fragile") and os.path.exists("a b/checkpoint.ckpt"):
        raise ValueError("x.jpg is damaged")
    return inputs"""


def test_only_a_finished_run_is_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere is no folder" in refused(capsys, "evaluate", "nowhere")
    assert grow("--out", "a") == 0
    error = refused(capsys, "evaluate", "a")
    assert error == "a holds a run of 'tiny', which is no recipe of meristem: name it by --recipe MODULE:FUNCTION"
    Path("a/result.json").unlink()
    assert "is not finished; meristem grow --resume a" in refused(
        capsys, "evaluate", "a", "--recipe", "users_recipe:tiny"
    )


def compile_by(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile with another backend: no C++ compiler is needed, and a moment is enough."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))


def test_a_compiled_run_is_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """To rounding; and it is compiled anew when the widths have changed."""
    compiled_widths: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        compiled_widths.append(max(len(value) for value in inputs if isinstance(value, torch.nn.Parameter)))
        return graph.forward

    compile_by(backend, monkeypatch)
    for out, compiled in (("plain", "no"), ("compiled", "yes")):
        assert (
            grow("--out", out, "--epochs", "4", "--method", "default:grow_until=0.7", "--set", f"compile={compiled}")
            == 0
        )
    plain, same = (json.loads(Path(out, "result.json").read_text()) for out in ("plain", "compiled"))
    assert plain["widths"] == same["widths"]
    assert same["test"]["loss"] == pytest.approx(plain["test"]["loss"], rel=1e-4)
    history = [json.loads(line) for line in Path("compiled/history.jsonl").read_text().splitlines()]
    wanted = [max(3, *record["widths"].values()) for record in history]
    assert compiled_widths == [width for width, _ in itertools.groupby(wanted)]
    assert len(compiled_widths) > 2


def test_what_torch_cannot_compile_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        raise OSError("no C++ compiler")

    compile_by(backend, monkeypatch)
    assert grow("--out", "none", "--set", "compile=yes") == 2
    error = capsys.readouterr().err
    assert error.startswith("meristem: torch cannot compile this model here (")
    assert "no C++ compiler" in error
    assert error.count("\n") == 1
