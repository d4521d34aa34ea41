"""Law 6. Save at any point, resume, and the losses are identical to the uninterrupted run.

Why: a run that was stopped must not be another experiment. Everything the future depends on is in the file: weights,
statistics, moments, the store, scores and what an unfinished epoch has gathered for them, counters, random numbers.
And a file that does not fit is refused before anything has changed, so that trying costs nothing.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deep import DEEP
from growing import KINDS, PRESETS, Growth, assert_same, everything, spoil, timeless
from helpers import assert_untouched, state_of
from meristem import Budget, methods
from meristem.errors import FileError
from meristem.history import read_history
from meristem.io import checkpoint

TESTS = Path(__file__).parents[1]
LEARNING = (PRESETS[0], "gates:peak=1.2", "paper")  # the presets that keep different things between steps
CASES = [
    *(("resnet", preset, list(KINDS)[number % 2]) for number, preset in enumerate(PRESETS)),
    *(("attention_matmul", preset, "adamw") for preset in LEARNING),
    *(("lstm_lm", preset, "sgd") for preset in LEARNING),
    *(("deep_residual", preset, list(KINDS)[number % 2]) for number, preset in enumerate(PRESETS)),
    ("deep_masked", PRESETS[0], "adamw"),
    ("deep_masked", "paper", "sgd"),
]
EPOCHS, STEPS = 4, 2
# Before the first step, in the middle of a growing epoch, between two, in the frozen end, and after the last.
POINTS = (0, 3, 4, 7, 8)
# Where blocks come and go: after every epoch and in the middle of two.
EPOCHS_WITH_BLOCKS = 5
POINTS_WITH_BLOCKS = {PRESETS[0]: (2, 4, 5, 6, 10)}


# --- resuming is going on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "preset", "kind"), CASES)
def test_resumed_run_is_the_uninterrupted_run(name: str, preset: str, kind: str, space_of, tmp_path: Path) -> None:
    """One run saves at every point and goes on; a fresh grower continues from each file.

    The model of the fresh grower has other weights and the global random numbers stand elsewhere, so nothing that
    ends up equal can come from anywhere but the file.
    """
    points = POINTS_WITH_BLOCKS.get(preset, (1, 2, 5)) if name in DEEP else POINTS
    epochs = EPOCHS_WITH_BLOCKS if name in DEEP else EPOCHS
    torch.manual_seed(1)
    growth = Growth(name, space_of(name), preset, kind=kind, epochs=epochs, steps=STEPS)
    then, absent = {}, set()
    for point in points:
        growth.go(point).save(tmp_path / str(point))
        then[point] = everything(growth)
        absent |= set(growth.grower.live.tree.absent)
    expected = everything(growth.go())
    assert bool(absent) == (name in DEEP), "of the blocks that may be absent, some must be at some time"
    for point in points:
        torch.manual_seed(1000 + point)
        again = Growth(name, space_of(name), preset, kind=kind, epochs=epochs, steps=STEPS)
        spoil(again.model)
        again.resume(tmp_path / str(point))
        assert_same(everything(again), then[point])
        assert_same(everything(again.go()), expected)


@pytest.mark.parametrize("preset", LEARNING)
def test_again_and_again(preset: str, space_of, tmp_path: Path) -> None:
    """Saved and resumed after every single step: it ends as a run that was never saved at all."""
    torch.manual_seed(1)
    expected = everything(Growth("plain", space_of("plain"), preset, epochs=EPOCHS).go())
    torch.manual_seed(1)
    growth = Growth("plain", space_of("plain"), preset, epochs=EPOCHS)
    for point in range(1, STEPS * EPOCHS):
        growth.go(point).save(tmp_path / "run")
        growth = Growth("plain", space_of("plain"), preset, epochs=EPOCHS).resume(tmp_path / "run")
    assert_same(everything(growth.go()), expected)


@pytest.mark.parametrize("preset", LEARNING)
def test_going_back(preset: str, space_of, tmp_path: Path) -> None:
    """A grower in the middle of its run can go back to an earlier checkpoint of it: what came after is forgotten."""
    torch.manual_seed(1)
    history = tmp_path / "history.jsonl"
    growth = Growth("plain", space_of("plain"), preset, epochs=EPOCHS, history=history).go(3)
    growth.save(tmp_path / "run")
    growth.go(6).resume(tmp_path / "run").go()
    torch.manual_seed(1)
    expected = Growth("plain", space_of("plain"), preset, epochs=EPOCHS, history=tmp_path / "other").go()
    assert_same(everything(growth), everything(expected), leave=("path",))
    assert timeless(read_history(history)) == timeless(read_history(tmp_path / "other"))


@pytest.mark.parametrize("name", ["plain", "deep_residual"])
@pytest.mark.parametrize("preset", [PRESETS[0], "paper"])
def test_going_back_from_the_end(preset: str, name: str, space_of, tmp_path: Path) -> None:
    """A finished grower has let go of the optimizer, and may have other blocks; it must listen to it again."""
    torch.manual_seed(1)
    growth = Growth(name, space_of(name), preset, epochs=EPOCHS).go(3)
    growth.save(tmp_path / "run")
    expected = everything(growth.go())
    assert_same(everything(growth.resume(tmp_path / "run").go()), expected)


def test_what_the_user_adds_comes_back(space_of, tmp_path: Path) -> None:
    growth = Growth("mlp", space_of("mlp")).go(3)
    extra = {"best": 0.5, "order": torch.randperm(7), "seen": [1, 2], "nothing": None, "np": np.arange(3)}
    growth.grower.checkpoint(tmp_path / "run", **extra)
    got = Growth("mlp", space_of("mlp")).grower.resume(tmp_path / "run")
    assert got.keys() == extra.keys()
    assert torch.equal(got["order"], extra["order"])
    assert np.array_equal(got["np"], extra["np"])
    assert (got["best"], got["seen"], got["nothing"]) == (0.5, [1, 2], None)


def test_history_file_is_that_of_the_checkpoint(space_of, tmp_path: Path) -> None:
    """What a killed run wrote beyond its checkpoint, half a line included, goes away; the run then writes it again."""
    history = tmp_path / "history.jsonl"
    torch.manual_seed(1)
    growth = Growth("mlp", space_of("mlp"), history=history).go(4)
    growth.save(tmp_path / "run")
    expected = timeless(growth.go().grower.records)
    with history.open("ab") as file:
        file.write(b'{"epoch": 9, "wid')
    again = Growth("mlp", space_of("mlp"), history=history).resume(tmp_path / "run")
    assert timeless(read_history(history)) == expected[:2]
    again.go()
    assert timeless(read_history(history)) == timeless(again.grower.records) == expected


# --- kill -9 ------------------------------------------------------------------------------------------------------

# Importing torch takes seconds, so one process imports it and makes a trainer for every line it is sent. A trainer
# resumes if there is a checkpoint, saves one after each epoch, and writes its results when it is done.
TRAINERS = """
import os, sys, time
from pathlib import Path
import torch
import meristem
from growing import Growth
from zoo import ZOO

torch.set_num_threads(1)
space = meristem.trace(*ZOO["resnet"].build())

def train(folder):
    torch.manual_seed(3)
    growth = Growth("resnet", space, "gates", kind="adamw", epochs=12, steps=3, history=folder / "history.jsonl")
    if (folder / "checkpoint").exists():
        growth.resume(folder / "checkpoint")
    print(os.getpid(), flush=True)
    while growth.grower.epoch < 12:
        growth.step()
        time.sleep(0.002)
        if growth.done % 3 == 0:
            growth.save(folder / "checkpoint")
    torch.save([growth.losses, growth.model.state_dict(), growth.optimizer.state_dict()], folder / "part")
    os.replace(folder / "part", folder / "result")

Growth("resnet", space, "gates", kind="adamw")  # torch loads what it loads late, once for all trainers

for line in sys.stdin:
    child = os.fork()
    if not child:
        train(Path(line.strip()))
        os._exit(0)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


def test_kill_9(tmp_path: Path) -> None:
    """A process that is killed at random moments and started again ends with the losses and weights of one that was
    left alone, and its history is that of one run. The moments are within a quarter of a whole run's time, so that
    there are at least three."""
    rng, took = random.Random(1), 0.0
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    with subprocess.Popen(
        [sys.executable, "-c", TRAINERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
    ) as trainers:
        assert trainers.stdin
        assert trainers.stdout
        for folder in (whole, broken):
            folder.mkdir()
            kills = resumed = 0
            while not (folder / "result").exists():
                resumed += (folder / "checkpoint").exists()
                print(folder, file=trainers.stdin, flush=True)
                child, start = int(trainers.stdout.readline()), time.perf_counter()
                if folder is broken and kills < 8:
                    time.sleep(rng.uniform(0.0, took / 4))
                    if not (folder / "result").exists():
                        os.kill(child, signal.SIGKILL)
                        kills += 1
                assert trainers.stdout.readline() == "gone\n"
                took = time.perf_counter() - start if folder is whole else took
        trainers.stdin.close()
    assert kills >= 3
    assert resumed >= 1
    found, expected = (torch.load(folder / "result") for folder in (broken, whole))
    assert len(expected[0]) == 12 * 3
    assert found[0] == expected[0]
    for got, wanted in zip(found[1:], expected[1:], strict=True):
        assert_same(flat(got), flat(wanted))
    assert timeless(read_history(broken / "history.jsonl")) == timeless(read_history(whole / "history.jsonl"))


def flat(state: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(state, dict):
        return {name: state}
    return {key: value for part, inner in state.items() for key, value in flat(inner, f"{name}.{part}").items()}


# --- what is refused ----------------------------------------------------------------------------------------------


def refused(growth: Growth, path: Path, message: str) -> None:
    """The checkpoint is not taken, and not a bit has changed: not even which objects the model's parameters are."""
    model, before = state_of(growth.model), everything(growth)
    others = (random.getstate(), np.random.get_state()[1].tolist())
    with pytest.raises(FileError, match=message) as error:
        growth.grower.resume(path)
    assert str(path) in str(error.value)
    assert_untouched(growth.model, model)
    assert_same(everything(growth), before)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == others


@pytest.fixture
def saved(space_of, tmp_path: Path) -> Path:
    growth = Growth("plain", space_of("plain"), epochs=EPOCHS).go(5)
    growth.save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def growth(space_of, tmp_path: Path) -> Growth:
    """Another run like the saved one, in the middle of an epoch, with a history file."""
    torch.manual_seed(7)
    return Growth("plain", space_of("plain"), epochs=EPOCHS, history=tmp_path / "history.jsonl").go(3)


def test_damaged(saved: Path, growth: Growth) -> None:
    content = saved.read_bytes()
    rng = random.Random(0)
    for place in [0, 9, len(content) - 1, *(rng.randrange(len(content)) for _ in range(5))]:
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        saved.write_bytes(changed)
        refused(growth, saved, "damaged|not a file of meristem|not understood")


def test_truncated_and_longer(saved: Path, growth: Growth) -> None:
    content = saved.read_bytes()
    for wrong in (b"", content[:7], content[: len(content) // 2], content[:-1], content + b"\0"):
        saved.write_bytes(wrong)
        refused(growth, saved, "cut short")


def test_no_checkpoint_at_all(saved: Path, growth: Growth, tmp_path: Path) -> None:
    refused(growth, tmp_path / "nowhere", "does not exist")
    refused(growth, tmp_path, "is not a file")
    saved.write_bytes(pickle.dumps({"epoch": 3}))
    refused(growth, saved, "not a file of meristem")
    torch.save(growth.model.state_dict(), saved)
    refused(growth, saved, "not a file of meristem")
    checkpoint.write(saved, {"epoch": 3}, kind="something else")
    refused(growth, saved, "something else")


def test_of_another_run(growth: Growth, space_of, tmp_path: Path) -> None:
    """Other model, budget, epochs, seed, method, optimizer: each is named, with what it is there and here."""
    space, path = space_of("plain"), tmp_path / "run"
    method = methods.default()
    others: dict[str, dict[str, Any]] = {
        "model": {"name": "mlp", "space": space_of("mlp")},
        "budget": {"budget": Budget(params="40%")},
        "epochs": {"epochs": EPOCHS + 1},
        "seed": {"seed": 1},
        "method": {"preset": replace(method, freeze=method.freeze * 0.9)},
        "optimizer": {"kind": "adamw"},
    }
    for what, settings in others.items():
        made = {"name": "plain", "space": space, "epochs": EPOCHS, **settings}
        Growth(made.pop("name"), made.pop("space"), made.pop("preset", "default"), **made).go(3).save(path)
        refused(growth, path, f"saved by another run: its {what} (is|has) .*, here ")


def test_a_refused_file_is_no_loss(saved: Path, space_of, tmp_path: Path) -> None:
    """After all refusals the run goes on as if nothing had been tried."""
    torch.manual_seed(7)
    expected = Growth("plain", space_of("plain"), epochs=EPOCHS, history=tmp_path / "other").go()
    expected = everything(expected)
    stranger = Growth("plain", space_of("plain"), epochs=EPOCHS, seed=5)
    torch.manual_seed(7)
    growth = Growth("plain", space_of("plain"), epochs=EPOCHS, history=tmp_path / "history").go(3)
    stranger.save(tmp_path / "stranger")
    refused(growth, tmp_path / "stranger", "seed")
    saved.write_bytes(saved.read_bytes()[:-5])
    refused(growth, saved, "cut short")
    assert_same(everything(growth.go()), expected, leave=("path",))
