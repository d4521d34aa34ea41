"""What room for blocks that are not there costs: memory and time, measured in one run on one machine.

    python benchmarks/depth.py                 # room for 200 blocks a stage, 5 live; some minutes, most of it tracing
    python benchmarks/depth.py --room 50

Processes train the same network, a Basic3ResNet of 5 blocks a stage at full width. In one it is built so and meristem
knows nothing of it; in the others it grows from 4 blocks a stage to 5 while it is trained, without and with room for
many more. The largest memory of the steps around that growth is compared, as the median of interleaved repeats.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import meristem
from meristem_bench.models.depth_starts import basic3_resnet

BATCH, STEPS, LIVE = 128, 3, 5


def peak_mib() -> float:
    """The largest resident memory since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def blocks_live(space: meristem.Space, count: int) -> dict[str, range]:
    """The first ``count`` blocks of every stage."""
    return {
        block.group: range(int(at < count - stage.fixed))
        for stage in space.stages
        for at, block in enumerate(stage.blocks)
    }


def tensors_mib() -> float:
    """All tensors that exist, which is what a device without an allocator of its own would have to hold."""
    gc.collect()
    held = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in gc.get_objects()
        if isinstance(each, torch.Tensor) and each.device.type == "cpu"
    }
    return sum(held.values()) / 2**20


def train(room: int, grown: bool) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = basic3_resnet((room,) * 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    def steps() -> None:
        for _ in range(STEPS):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    seconds = 0.0
    if grown:
        start = time.process_time()
        space = meristem.trace(model, torch.randn(1, 3, 32, 32), depth=True)
        seconds = time.process_time() - start
        live = meristem.Live(model, space, optimizer, start=blocks_live(space, LIVE - 1))
    before = peak_mib()
    forget_peak()
    if grown:
        steps()
        live.apply(live.plan(blocks_live(space, LIVE)))
    steps()
    told = {"params": sum(parameter.numel() for parameter in model.parameters()), "traced": seconds, "before": before}
    print(json.dumps({**told, "training": peak_mib(), "tensors": tensors_mib()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", type=int, default=200, help="blocks a stage (default: 200)")
    parser.add_argument("--repeats", type=int, default=3, help="of every process (default: 3)")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        train(int(args.one[0]), args.one[1] == "grown")
        return
    kinds = {
        f"built with {LIVE} blocks a stage": (LIVE, "built"),
        f"grown to {LIVE}, with room for {LIVE}": (LIVE, "grown"),
        f"grown to {LIVE}, with room for {args.room}": (args.room, "grown"),
    }
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(args.repeats):
        for kind, (room, how) in kinds.items():
            command = [sys.executable, __file__, "--one", str(room), how]
            found[kind].append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    training = {}
    for kind, runs in found.items():
        told = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        training[kind] = told["training"]
        print(
            f"{kind:<32} {told['params']:9,.0f} parameters  traced in {told['traced']:3.0f} s  largest memory "
            f"{told['before']:4.0f} MiB before, {told['training']:4.0f} MiB while training  tensors at the end "
            f"{told['tensors']:3.0f} MiB"
        )
    built, _, roomy = training.values()
    print(f"memory while growing against the network built so: {roomy / built - 1:+.1%} (bar: 10 %)")


if __name__ == "__main__":
    main()
