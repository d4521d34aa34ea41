"""What room for blocks that are not there costs: memory and time, measured in one run on one machine.

    python benchmarks/depth.py                 # room for 200 blocks a stage, 5 live; some minutes, most of it tracing
    python benchmarks/depth.py --room 50

Two processes train the same network, a Basic3ResNet of 5 blocks a stage at full width: one is built so, the other has
room for many more. The largest memory while training is compared, and while it was built and traced.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import meristem
from meristem.models.seeds import basic3_resnet

BATCH, STEPS, LIVE = 128, 3, 5


def peak_mib() -> float:
    """The largest resident memory since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def train(room: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = basic3_resnet((room,) * 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    start = time.process_time()
    space = meristem.trace(model, torch.randn(1, 3, 32, 32), depth=True)
    traced = time.process_time() - start
    live = {group.name: range(group.units) for group in space.groups.values() if group.kind != "depth"}
    for stage in space.stages:
        live.update({block.group: [0] if at < LIVE - stage.fixed else [] for at, block in enumerate(stage.blocks)})
    start = time.process_time()
    made = meristem.Live(model, space, optimizer, start=live)
    made_seconds = time.process_time() - start
    building = peak_mib()
    forget_peak()
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    for _ in range(STEPS):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    params = sum(parameter.numel() for parameter in model.parameters())
    assert params == round(meristem.count_params(space, made.widths))
    print(f"{room} {params} {traced:.1f} {made_seconds:.1f} {building:.0f} {peak_mib():.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", type=int, default=200, help="blocks a stage (default: 200)")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        train(args.one)
        return
    rows = []
    for room in (LIVE, args.room):
        told = subprocess.run(
            [sys.executable, __file__, "--one", str(room)], capture_output=True, text=True, check=True
        )
        rows.append([float(value) for value in told.stdout.split()])
        _, params, traced, made, building, training = rows[-1]
        print(
            f"room for {room} blocks a stage, {LIVE} live ({params:,.0f} parameters): traced in {traced:.0f} s, made "
            f"live in {made:.1f} s; largest memory {building:.0f} MiB before and {training:.0f} MiB while training"
        )
    print(f"memory while training: {rows[1][5] / rows[0][5] - 1:+.1%} (bar: 10 %)")


if __name__ == "__main__":
    main()
