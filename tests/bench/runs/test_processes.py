"""``meristem grow`` as several processes: as torchrun starts them, and by --processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fresh_process import ForkedCommand, ForkServer

# Norms over a batch would see other samples in each process, so there are none here.
RECIPES = """
import torch
from torch import nn
from meristem_bench.data.arrays import Arrays
from meristem_bench.data.augment import shifted
from meristem_bench.data.digits import BLANK, digits
from meristem_bench.data.streamed import Streamed
from meristem_bench.data.words import END, Words
from meristem_bench.runs import OptimizerConfig, Run
from meristem_bench.runs.task import Classification, LanguageModel

def net(keep=1.0):
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.GroupNorm(1, 6), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Dropout(1 - keep), nn.Linear(72, 10),
    )

def parts():
    return {name: (images[:90], labels[:90]) for name, (images, labels) in digits().items()}

def arrays(run):
    return Arrays(parts(), lambda images, generator: shifted(images, 1, generator, BLANK))

class Rows:
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def load(self, index, rng):
        noise = 0 if rng is None else torch.from_numpy(rng.standard_normal((1, 8, 8))).float()
        return self.images[index] + noise, self.labels[index]

def streamed(run):
    return Streamed({name: Rows(*split) for name, split in parts().items()})

class Reader(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.embed, self.read = nn.Embedding(classes, 6), nn.LSTM(6, 8, batch_first=True)
        self.say = nn.Linear(8, classes)

    def forward(self, words, state=None):
        read, state = self.read(self.embed(words), state)
        return self.say(read), state

def words(run):
    text = torch.randint(0, 5, (400,), generator=torch.Generator().manual_seed(0))
    splits = {"train": text, "validation": text[:90], "test": text[:75]}
    return Words((END, "a", "b", "c", "d"), splits, run.data.unroll)

def recipe(model, load, task, **more):
    return Run(
        name="shared", about="One.", model=model, load=load, task=task, epochs=4, batch=20,
        optimizer=OptimizerConfig(lr=0.05, momentum=0.9), **more,
    ).with_settings({"method": "search:peak=1.2", "threads": "1"})

def from_arrays():
    return recipe(net, arrays, Classification())

def from_files():
    return recipe(net, streamed, Classification())

def from_words():
    return recipe(Reader, words, LanguageModel()).with_settings({"unroll": "4", "batch": "4"})
"""

# The ranks of one test after the other are forks of one process, which has imported everything.
SCRIPT = """
import json, os, signal, socket, sys
import torch
from meristem_bench.cli import main
from meristem_bench.commands import grow
from meristem_bench.runs import loop

torch.set_num_threads(1)
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
train_epoch = loop.train_epoch

def started(words, output, environment, prepare):
    child = os.fork()
    if child:
        return child
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    os.environ.update(environment)
    prepare()
    code = main(["grow", *words])
    sys.stdout.flush()
    os._exit(code)

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def one(*words):
    assert ended(started(words, "output", {}, lambda: None)) == 0, open("output").read()

def ranks(*words, start=0, restarts=0, dies=None):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])

    def die_in_the_third_epoch():
        def train(training, observer):
            if training.grower.epoch == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return train_epoch(training, observer)
        loop.train_epoch = train

    children = [
        started(words, f"output {rank}", {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
            "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_RESTART_COUNT": str(start),
            "TORCHELASTIC_MAX_RESTARTS": str(restarts),
        }, die_in_the_third_epoch if rank == dies else lambda: None)
        for rank in range(2)
    ]
    return {"codes": [ended(child) for child in children], "said": [open(f"output {rank}").read() for rank in range(2)]}

found = {}
for name in ("from_arrays", "from_files", "from_words"):
    one(f"recipes:{name}", "--out", f"{name}-one")
    found[name] = ranks(f"recipes:{name}", "--out", f"{name}-two")
dropout = ("recipes:from_arrays", "--set", "keep=0.7")
found["undisturbed"] = ranks(*dropout, "--out", "undisturbed")
found["killed"] = ranks(*dropout, "--out", "killed", restarts=1, dies=1)
found["started anew"] = ranks(*dropout, "--out", "killed", start=1, restarts=1)
found["finished"] = ranks(*dropout, "--resume", "killed")
found["no folder"] = ranks("recipes:from_arrays", restarts=1)
found["uneven"] = ranks("recipes:from_arrays", "--set", "batch=21", "--out", "uneven")
found["taken"] = ranks("recipes:from_arrays", "--out", "from_arrays-one")
found["other count"] = ranks("recipes:from_arrays", "--resume", "from_arrays-one", "--set", "epochs=4")
found["setting"] = ranks("recipes:from_arrays", "--set", "processes=3", "--out", "setting")
found["nan"] = ranks("recipes:from_arrays", "--set", "lr=1e30", "--out", "nan")
found["batch norm"] = ranks("digits", "--epochs", "1", "--out", "norms")
found["seeds"] = ranks("recipes:from_arrays", "--seeds", "2")
json.dump(found, open("found.json", "w"))
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "recipes.py").write_text(RECIPES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def found(here: Path) -> dict[str, Any]:
    return json.loads((here / "found.json").read_text())


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "history.jsonl").read_text().splitlines()
    times = ("seconds", "peak_bytes")
    return [{key: value for key, value in json.loads(line).items() if key not in times} for line in lines]


@pytest.mark.parametrize("name", ["from_arrays", "from_files", "from_words"])
def test_two_processes_are_one(here: Path, found: dict[str, Any], name: str) -> None:
    """The same losses as one process with the same batch, within rounding; rank 0 alone writes and speaks."""
    assert found[name]["codes"] == [0, 0], found[name]["said"]
    one, two = records(here / f"{name}-one"), records(here / f"{name}-two")
    assert len(two) == 4
    for alone, shared in zip(one, two, strict=True):
        assert shared["widths"] == alone["widths"]
        assert shared["spend_macs"] == alone["spend_macs"]
        assert shared["metrics"] == pytest.approx(alone["metrics"], abs=1e-5)
    tests = [json.loads((here / f"{name}-{count}" / "result.json").read_text())["test"] for count in ("one", "two")]
    assert tests[1] == pytest.approx(tests[0], abs=1e-5)
    first, second = found[name]["said"]
    assert "2 processes: each step has" in first
    assert "the learning rate is that of all of them, 0.05" in first
    assert second == ""


def test_a_start_anew_goes_on_from_the_last_checkpoint(here: Path, found: dict[str, Any]) -> None:
    """With the bits of an undisturbed run, dropout on every rank included."""
    assert found["undisturbed"]["codes"] == [0, 0], found["undisturbed"]["said"]
    assert found["killed"]["codes"] == [3, -signal.SIGKILL]
    last = found["killed"]["said"][0].strip().splitlines()[-1]
    assert last == "meristem: another process of this run has ended; finished epochs are kept"
    assert found["started anew"]["codes"] == [0, 0], found["started anew"]["said"]
    assert "resumed after epoch 2" in found["started anew"]["said"][0]
    assert records(here / "killed") == records(here / "undisturbed")
    networks = [(here / run / "model" / "model.safetensors").read_bytes() for run in ("killed", "undisturbed")]
    assert networks[0] == networks[1]
    assert found["finished"]["codes"] == [0, 0]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no folder", "torchrun may start this run anew (1 times), which then has to find what it has done: give it a"),
        ("uneven", "a batch of 21 samples cannot be shared evenly by 2 processes: --set batch=20, or another number"),
        ("taken", "holds another run; go on with it by --resume"),
        ("setting", "processes are not set but started: give --processes N, or start the command by torchrun"),
        ("nan", "the loss became nan in epoch 1; lower the learning rate"),
    ],
)
def test_what_all_ranks_refuse_is_told_once(found: dict[str, Any], case: str, message: str) -> None:
    assert found[case]["codes"] == [2, 2]
    first, second = found[case]["said"]
    assert message in first
    assert second == ""


def test_a_run_keeps_its_number_of_processes(found: dict[str, Any]) -> None:
    """A finished one is shown by any number."""
    assert found["other count"]["codes"] == [0, 0]


def test_several_seeds_are_not_shared(found: dict[str, Any]) -> None:
    assert found["seeds"]["codes"] == [2, 2]
    assert "runs of several seeds are trained in one process each" in found["seeds"]["said"][0]


def test_batch_norms_are_told(found: dict[str, Any]) -> None:
    assert found["batch norm"]["codes"] == [0, 0], found["batch norm"]["said"]
    assert "Batch norms see the 32 samples of their own process" in found["batch norm"]["said"][0]


@pytest.mark.slow
def test_processes_are_started_and_a_death_is_one_sentence(here: Path, fork_server: ForkServer) -> None:
    """By torch's own launcher. The run goes on with as many processes, and refuses to with another number."""

    def command(*words: str, output: str = "log") -> ForkedCommand:
        (here / output).unlink(missing_ok=True)
        return ForkedCommand(fork_server, ["grow", *words], here / output)

    before = os.getcwd()
    os.chdir(here)
    try:
        long = ("recipes:from_arrays", "--set", "epochs=400", "--out", "started")
        run = command(*long, "--processes", "2")
        while not (here / "started" / "checkpoint.ckpt").exists():
            assert run.poll() is None, (here / "log").read_text()
            time.sleep(0.05)
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        os.kill(int(max(children, key=int)), signal.SIGKILL)
        assert run.wait(60) == 2
        told = [line for line in (here / "log").read_text().splitlines() if line.startswith("meristem: ")]
        assert told == [
            "meristem: process 1 of 2 was killed (SIGKILL), which ends the run; every finished epoch is kept. "
            "To go on: meristem grow recipes:from_arrays --resume started --processes 2"
        ]
        assert command("recipes:from_arrays", "--resume", "started").wait(60) == 2
        assert "this run has 2 processes, but 1 is here" in (here / "log").read_text()
    finally:
        os.chdir(before)
