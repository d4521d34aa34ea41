"""How long finished networks take to answer: eager, on one thread of the CPU, for one sample and for a batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from meristem.errors import FileError
from meristem_bench.runs.data import Data
from meristem_bench.runs.folder import Folder, read_json, write_json
from meristem_bench.runs.forward import Forward
from meristem_bench.runs.other_work import OtherWork
from meristem_bench.runs.run import Run

_FORMAT = "meristem-latency-1"
_ROUNDS, _SECONDS = 9, 20.0  # of each batch size: as many rounds, but none begins after so long

Latency = dict[str, Any]


def read_latency(folder: Folder) -> Latency | None:
    """What was measured of a run; None if nothing was, or it cannot be read: it is then measured again."""
    try:
        latency = read_json(folder.latency)
    except FileError:
        return None
    return latency if latency.get("format") == _FORMAT else None


def write_latency(folder: Folder, latency: Latency) -> None:
    write_json(folder.latency, latency)


def measured_latencies(run: Run, data: Data, models: Sequence[nn.Module]) -> list[Latency]:
    """Of every model the median milliseconds of a forward pass, by the size of the batch.

    The models take turns, so that all meet what else the machine does. Inputs are the first test batch of that size.
    """
    on_cpu = run.replace(device="cpu", bf16=False, channels_last=False, compile=False)
    for model in models:
        model.cpu().eval()
    other_work = OtherWork()
    with _one_thread():
        by_batch = {
            size: _medians(on_cpu, _first_inputs(data, size), models) for size in dict.fromkeys((1, on_cpu.batch))
        }
    share = other_work.share()
    return [
        {
            "format": _FORMAT,
            "threads": 1,
            "ms": {str(size): medians[index] for size, medians in by_batch.items()},
            "other_work": share,
        }
        for index in range(len(models))
    ]


def _medians(run: Run, inputs: Tensor, models: Sequence[nn.Module]) -> list[float]:
    times: list[list[float]] = [[] for _ in models]
    started = time.perf_counter()
    with torch.no_grad():
        for turn in range(_ROUNDS + 1):  # the first warms up, and counts where there is no time for another
            for model, measured in zip(models, times, strict=True):
                before = time.perf_counter()
                Forward(run, model)(inputs)
                measured.append(1000 * (time.perf_counter() - before))
            if turn and time.perf_counter() - started > _SECONDS:
                break
    return [statistics.median(measured[1:] or measured) for measured in times]


def _first_inputs(data: Data, batch: int) -> Tensor:
    with closing(data.evaluate("test", batch)) as batches:  # type: ignore[type-var]
        return next(iter(batches))[0]


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def latency_ms(result: Mapping[str, Any]) -> dict[str, float]:
    """The milliseconds of a result by batch size, as far as they were measured."""
    return dict((result.get("latency") or {}).get("ms", {}))
