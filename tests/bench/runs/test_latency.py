"""Latency of finished networks: one thread, two sizes of batch, the share of other work; and what is in the way."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from meristem_bench.data.arrays import Arrays
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.latency import measured_latencies
from meristem_bench.runs.other_work import OtherWork


class Watched(nn.Module):
    """Remembers what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, int, bool]] = []
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append((len(x), torch.get_num_threads(), self.training))
        return self.head(x)


def test_all_models_meet_the_same_batches_in_turn_on_one_thread() -> None:
    run = find_run("digits", None).with_settings({"batch": 8, "bf16": "yes"})
    data = Arrays({split: (torch.randn(20, 4), torch.zeros(20).long()) for split in ("train", "test")})
    models, threads = [Watched(), Watched()], torch.get_num_threads()
    first, second = measured_latencies(run, data, models)
    assert torch.get_num_threads() == threads
    assert models[0].calls == models[1].calls
    assert {(size, count, training) for size, count, training in models[0].calls} == {(1, 1, False), (8, 1, False)}
    assert set(first["ms"]) == {"1", "8"}
    assert all(ms > 0 for ms in (*first["ms"].values(), *second["ms"].values()))
    assert first["other_work"] == second["other_work"]


@pytest.mark.skipif(
    sys.platform != "linux", reason="the share of other processes is read from /proc/stat, which only Linux has"
)
def test_other_work_is_noticed() -> None:
    watch = OtherWork()
    busy = "import time; end = time.process_time() + 0.6\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    share = watch.share()
    assert share is not None
    assert share > 0.2
