"""What growing under DistributedDataParallel adds to an epoch, counted on two ranks of this machine.

    python benchmarks/data_parallel.py             # default and search; two minutes
    python benchmarks/data_parallel.py default     # one method

A ResNet-20 on images of 32 x 32, 64 on each of two gloo ranks. An epoch has 391 training steps (CIFAR-10 with batches
of 128). Training steps and `grower.step()` are run in turn, and times are processor times of a rank with all its
threads, so that other work on the machine does not count; waiting for the other rank does not, either. Two shares are
told: of `step()` with all it does (decide, resize, average, build the reducer anew), and of what it does more than in
one process, which is the difference between a wrapped and a plain model in the same process.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel

import meristem
from meristem_bench.models.resnet_cifar import ResNetCifar

STEPS_AN_EPOCH, BATCH, EPOCHS = 391, 64, 12


def measure(method: str, wrap: bool) -> tuple[float, float, int]:
    """The processor seconds of a training step and of a `step()` that changes the network, and how many did."""
    torch.manual_seed(0)
    model: nn.Module = ResNetCifar(20)
    model = DistributedDataParallel(model) if wrap else model
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    grower = meristem.Grower(
        model, optimizer, images[:1], budget="36%", epochs=EPOCHS, method=method, space=SPACE, batch_size=2 * BATCH
    )
    trained, stepped = [], []
    for _ in range(EPOCHS):
        for _ in range(4):
            start = time.process_time()
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained.append(time.process_time() - start)
        start, before = time.process_time(), grower.live.version
        grower.step()
        if grower.live.version != before:
            stepped.append(time.process_time() - start)
    return statistics.median(trained), statistics.median(stepped), len(stepped)


def compare(method: str) -> None:
    train, step, count = measure(method, wrap=True)
    group = torch.distributed.get_world_size()
    if torch.distributed.get_rank() == 0:
        share = step / (STEPS_AN_EPOCH * train)
        print(f"{method}: training step {1e3 * train:.0f} ms, step() {1e3 * step:.0f} ms on each of {group} ranks")
        print(f"  step() is {share:.2%} of an epoch of {STEPS_AN_EPOCH} steps (median of {count} that changed structure)")


def main() -> None:
    torch.set_num_threads(1)
    methods = sys.argv[1:] or ["default:grow_until=0.9:start=0.05", "search:peak=1.2"]
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        rank = 0 if child else 1
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
        for method in methods:
            compare(method)
        torch.distributed.destroy_process_group()
        if child:
            os.waitpid(child, 0)
        else:
            os._exit(0)


if __name__ == "__main__":
    SPACE = meristem.trace(ResNetCifar(20), torch.randn(1, 3, 32, 32))
    main()
