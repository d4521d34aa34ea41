"""What growing adds to a training step, measured in one run on one machine.

    python benchmarks/growing.py             # every preset; about a minute
    python benchmarks/growing.py default     # one preset

Gates, penalty and learning act on weights, so what they add to a step hardly depends on the batch. It is measured where
it can be seen: two ResNet-20 of the same widths, one with a grower and one without, step in turn on two small images;
the difference of the medians is stated against a step on 128 images of 32 x 32. Deciding and resizing happen once an
epoch and are stated against an epoch of 391 steps (CIFAR-10). Times are processor times of one thread, so that other
work on the machine does not count.
"""

from __future__ import annotations

import copy
import dataclasses
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

import meristem
from meristem.control.schedule import Schedule
from meristem_bench.models.resnet_cifar import ResNetCifar

STEPS_AN_EPOCH = 391


def step_seconds(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> float:
    start = time.process_time()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.process_time() - start


def compare(name: str, repeats: int = 40) -> None:
    method = dataclasses.replace(
        meristem.methods.METHODS[name](), schedule=Schedule(start=1.0, grow_until=0.0, peak=1.0)
    )
    torch.manual_seed(0)
    model = ResNetCifar(20)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    budget = meristem.Budget(params="100%")
    grower = meristem.Grower(model, optimizer, torch.randn(1, 3, 32, 32), budget=budget, epochs=100, method=method)
    plain = copy.deepcopy(grower.export())
    plain_optimizer = optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    small = torch.randn(2, 3, 8, 8), torch.randint(0, 10, (2,))
    large = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))
    for _ in range(3):
        step_seconds(model, optimizer, *small), step_seconds(plain, plain_optimizer, *small)
    pairs = [
        (step_seconds(model, optimizer, *small), step_seconds(plain, plain_optimizer, *small)) for _ in range(repeats)
    ]
    added = statistics.median(grown for grown, _ in pairs) - statistics.median(bare for _, bare in pairs)
    base = statistics.median(step_seconds(plain, plain_optimizer, *large) for _ in range(5))
    start = time.process_time()
    record = grower.step()
    decision = time.process_time() - start
    changed = record["grown"] + record["restored"] + record["pruned"]
    print(
        f"{name}: {added * 1000:+.1f} ms on a step of {base * 1000:.0f} ms: {added / base:+.2%}; the decision "
        f"({changed} units changed) takes {decision:.3f} s, {decision / (STEPS_AN_EPOCH * base):.2%} of an epoch "
        f"(bar: 2 % together)"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or ("default", "search", "random", "gates", "paper", "uniform"):
        compare(name)
