"""What growing under DistributedDataParallel adds to an epoch, counted on two ranks of this machine.

    python benchmarks/data_parallel.py             # default and search; two minutes
    python benchmarks/data_parallel.py default     # one method

A ResNet-20 on images of 32 x 32, 64 on each of two gloo ranks. An epoch has 391 training steps (CIFAR-10 with batches
of 128). After every `step()` a plain copy of the network is wrapped, and both train in turn: the difference is what
growing adds to a training step. Times are processor times of a rank with all its threads, so that other work on the
machine does not count; nor does waiting for the other rank.
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
from torch import Tensor, nn, optim
from torch.nn.parallel import DistributedDataParallel

import meristem
from meristem_bench.models.resnet_cifar import ResNetCifar

STEPS_AN_EPOCH, BATCH, EPOCHS = 391, 64, 12


def train(model: nn.Module, optimizer: optim.Optimizer, images: Tensor, labels: Tensor) -> float:
    """The processor seconds of a training step."""
    start = time.process_time()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.process_time() - start


def measure(method: str) -> tuple[list[float], list[float], list[float]]:
    """The processor seconds of training steps with and without a grower, and of `step()` where structure changed."""
    torch.manual_seed(0)
    model = DistributedDataParallel(ResNetCifar(20))
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    grower = meristem.Grower(
        model, optimizer, data[0][:1], budget="36%", epochs=EPOCHS, method=method, space=SPACE, batch_size=2 * BATCH
    )
    grown, plain, stepped = [], [], []
    for _ in range(EPOCHS):
        other = DistributedDataParallel(grower.export())
        other_optimizer = optim.SGD(other.parameters(), lr=0.05, momentum=0.9)
        for number in range(6):
            pair = train(model, optimizer, *data), train(other, other_optimizer, *data)
            if number > 1:  # the first ones build buckets and momentum
                grown.append(pair[0])
                plain.append(pair[1])
        start, before = time.process_time(), grower.live.version
        grower.step()
        if grower.live.version != before:
            stepped.append(time.process_time() - start)
    return grown, plain, stepped


def compare(method: str) -> None:
    grown, plain, stepped = measure(method)
    if torch.distributed.get_rank():
        return
    step, train = statistics.median(stepped), statistics.median(plain)
    added = statistics.median(with_it / without - 1 for with_it, without in zip(grown, plain, strict=True))
    share = step / (STEPS_AN_EPOCH * train)
    print(f"{method}: training step {1e3 * train:.0f} ms, step() {1e3 * step:.0f} ms of processor time on each rank")
    print(f"  step(), the reducer included: {share:.2%} of an epoch (median of {len(stepped)} that changed structure)")
    print(f"  growing adds {added:.1%} to a training step (median of {len(grown)} pairs)")


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
