"""Streamed data: the same bits whatever the number of workers; workers leave no trace, and no noise, when they end."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.data.data_files import smooth_pixels, write_image
from meristem_bench.data.class_folders import class_folders
from meristem_bench.data.classification_views import CentreView, TrainView
from meristem_bench.data.streamed import Samples, Streamed
from meristem_bench.data.worker_signals import _report_unless_disconnected, interrupts_deferred


@dataclass(frozen=True)
class Numbers:
    """Sample k is k with some noise, its target is k."""

    count: int
    bad: int | None = None  # a sample that cannot be read
    deadly: int | None = None  # a sample that kills the process that reads it

    def __len__(self) -> int:
        return self.count

    def load(self, index: int, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        if index == self.bad:
            raise ValueError(f"folder/{index}.jpg is damaged (truncated); replace it or remove it")
        if index == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        noise = np.zeros(2) if rng is None else rng.random(2)
        return torch.tensor([index, *noise], dtype=torch.float64), torch.tensor(index)


@dataclass(frozen=True)
class Threads:
    """Tells how many threads torch uses where a sample is read, and what is done there on Ctrl-C."""

    def __len__(self) -> int:
        return 2

    def load(self, index: int, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        return torch.tensor([torch.get_num_threads()]), torch.tensor(deaf)


def numbers(workers: int = 0, **changes: int) -> Streamed:
    splits: dict[str, Samples] = {"train": Numbers(23, **changes), "test": Numbers(7), "validation": Numbers(2)}
    return Streamed(splits, workers=workers)


def listed(batches: Iterable[tuple[Tensor, Tensor]]) -> list[tuple[list[list[float]], list[int]]]:
    return [(inputs.tolist(), targets.tolist()) for inputs, targets in batches]


def test_the_batches_are_the_same_for_any_number_of_workers() -> None:
    seen = []
    for workers in (0, 1, 4):
        generator = torch.Generator().manual_seed(3)
        data = numbers(workers)
        epochs = [listed(data.train(4, generator)) for _ in range(2)]
        seen.append((epochs, generator.get_state().tolist(), listed(data.evaluate("test", 3))))
    assert seen[0] == seen[1] == seen[2]
    (first, second), _, evaluated = seen[0]
    assert len(first) == data.steps(4) == 5
    assert len({k for _, targets in first for k in targets}) == 20, "no sample twice; what fills no batch is left out"
    assert first != second
    assert [targets for _, targets in evaluated] == [[0, 1, 2], [3, 4, 5], [6]]
    assert evaluated[2][0] == [[6, 0, 0]]
    noises = [tuple(row[1:]) for inputs, _ in first + second for row in inputs]
    assert len(set(noises)) == 40, "every sample of every epoch has randomness of its own"


def test_a_run_goes_on_from_the_state_of_the_generator() -> None:
    straight = torch.Generator().manual_seed(3)
    listed(numbers().train(4, straight))
    whole = listed(numbers().train(4, straight))
    before, after = torch.Generator().manual_seed(3), torch.Generator()
    listed(numbers(2).train(4, before))
    after.set_state(before.get_state())
    assert listed(numbers(1).train(4, after)) == whole


@pytest.mark.parametrize("workers", [0, 1])
def test_the_global_random_states_are_left_alone(workers: int) -> None:
    def states() -> tuple[object, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    before = states()
    listed(numbers(workers).train(4, torch.Generator()))
    listed(numbers(workers).evaluate("validation", 4))
    assert states() == before


def test_it_is_data_of_a_run() -> None:
    data = numbers()
    assert data.has("validation")
    assert not data.has("other")
    assert data.samples("train") == 23
    (example,) = data.example
    assert example.shape == (1, 3)
    assert torch.equal(example, data.example[0])
    with pytest.raises(ValueError, match="a batch of 24 is larger than the 23 training samples"):
        data.steps(24)
    with pytest.raises(ValueError, match="no samples in the test split"):
        Streamed({"train": Numbers(2)})
    with pytest.raises(ValueError, match="no samples in the validation split"):
        Streamed({"train": Numbers(2), "test": Numbers(2), "validation": Numbers(0)})
    with pytest.raises(ValueError, match="workers must be a number of at least 0, got -1"):
        replace(data, workers=-1)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_arrives_as_it_was_raised(workers: int) -> None:
    data = numbers(workers, bad=7)
    with pytest.raises(ValueError, match=r"^folder/7.jpg is damaged \(truncated\); replace it or remove it$"):
        listed(data.train(1, torch.Generator()))
    assert not multiprocessing.active_children()


def test_a_killed_worker_is_one_sentence() -> None:
    before = signal.getsignal(signal.SIGCHLD)
    with pytest.raises(ValueError, match=r"^a process that reads train samples was killed, .* fewer workers than 1$"):
        listed(numbers(1, deadly=7).train(1, torch.Generator()))
    assert not multiprocessing.active_children()
    assert signal.getsignal(signal.SIGCHLD) is before, "nothing is raised in the middle of a training step"


def test_workers_end_when_no_more_batches_are_wanted() -> None:
    batches = numbers(2).train(4, torch.Generator())
    next(batches)
    assert len(multiprocessing.active_children()) == 2
    batches.close()
    assert not multiprocessing.active_children()
    for _ in numbers(1).evaluate("test", 1):
        break
    assert not multiprocessing.active_children()


def test_workers_use_one_thread_and_do_not_hear_interrupts() -> None:
    data = Streamed({"train": Threads(), "test": Threads()}, workers=1)
    for inputs, deaf in data.evaluate("test", 2):
        assert inputs.tolist() == [[1], [1]]
        assert deaf.all()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


INTERRUPTED = """
import time, torch
from meristem_bench.data.streamed import Streamed

class Slow:
    def __len__(self):
        return 100_000

    def load(self, index, rng):
        time.sleep(0.001)
        return torch.zeros(1), torch.tensor(index)

try:
    for step, batch in enumerate(Streamed({"train": Slow(), "test": Slow()}, workers=2).train(10, torch.Generator())):
        if step == 3:
            print("ready", flush=True)
except KeyboardInterrupt:
    print("stopped")
"""


def test_an_interrupt_is_the_parents_alone() -> None:
    pipe, command = subprocess.PIPE, [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes at once
        output, errors = process.communicate(timeout=60)
    assert (output, errors, process.returncode) == ("stopped\n", "", 0)


def test_an_interrupt_waits_until_the_workers_are_started_or_ended() -> None:
    """Also one that the system gives to another thread, which no mask of ours keeps from doing so."""
    heard, handler, go_on = [], signal.getsignal(signal.SIGINT), threading.Event()
    other = threading.Thread(target=go_on.wait)
    other.start()

    def interrupted() -> None:
        with interrupts_deferred():
            os.kill(os.getpid(), signal.SIGINT)
            go_on.wait(0.05)
            heard.append("the end")

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        go_on.set()
        other.join()
    assert heard == ["the end"]
    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_worker_is_silent_about_a_parent_that_left_and_about_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (ConnectionResetError(104, "reset"), BrokenPipeError(), EOFError()):
        _report_unless_disconnected(type(error), error, None)
    assert capsys.readouterr().err == ""
    _report_unless_disconnected(KeyError, KeyError("name"), None)
    assert "KeyError: 'name'" in capsys.readouterr().err


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_images_are_read_by_processes_of_either_kind(tmp_path: Path, start: str) -> None:
    for split in ("train", "val"):
        for number in range(6):
            write_image(tmp_path / split / "ab"[number % 2] / f"{number}.jpg", smooth_pixels(30, 20, seed=number))
    data = Streamed(class_folders(tmp_path, TrainView(16), CentreView(16)))
    alone = list(data.train(2, torch.Generator().manual_seed(0)))
    together = list(replace(data, workers=1, start=start).train(2, torch.Generator().manual_seed(0)))
    for (inputs, targets), (others, other_targets) in zip(alone, together, strict=True):
        assert inputs.shape == (2, 3, 16, 16)
        assert torch.equal(inputs, others)
        assert torch.equal(targets, other_targets)
    (tmp_path / "val" / "a" / "2.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"val/a/2.jpg is not an image \(JPEG, PNG, WebP or BMP\); replace it"):
        list(replace(data, workers=1).evaluate("test", 2))
