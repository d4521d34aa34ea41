"""How long a report takes and how large its page is, for a run of 200 epochs and 100 groups.

    python benchmarks/report.py

The run is a real one of a chain of narrow layers whose gradients are noise, so that its history takes seconds to make.
The report is written by the command itself in a new process: importing torch and matplotlib counts.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import meristem
from meristem.space.outline import outline
from meristem_bench.runs.folder import Folder, write_json

EPOCHS, GROUPS, REPEATS = 200, 100, 3


def write_run(path: Path) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16) for _ in range(GROUPS)]
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), *layers[:-1], nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4, 4)
    space = meristem.trace(model, x)
    folder, budget = Folder(path), meristem.Budget(params="36%")
    grower = meristem.Grower(model, optimizer, x, space=space, budget=budget, epochs=EPOCHS, history=folder.history)
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        grower.step(train_loss=1 / (epoch + 1), val_loss=1.1 / (epoch + 1), val_accuracy=epoch / EPOCHS)
    settings = {"epochs": EPOCHS, "method": "default", "budget": "params=36%"}
    folder.write_description({"name": "chain", "settings": settings})
    write_json(folder.space, outline(space))
    print(f"a run of {len(grower.records)} epochs and {len(space.groups)} groups")


def main() -> None:
    with tempfile.TemporaryDirectory() as held:
        run = Path(held) / "run"
        write_run(run)
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            command = [sys.executable, "-m", "meristem", "report", str(run)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - start)
        size = (run / "report.html").stat().st_size
        figures = len(list((run / "figures").glob("*.png")))
        print(f"report with {figures} figures: {statistics.median(seconds):.1f} s, median of {REPEATS} (bar: 10 s)")
        print(f"page: {size / 1e6:.2f} MB (bar: 3 MB)")


if __name__ == "__main__":
    main()
