"""What growing adds to a training step, measured in one run on one machine.

    python benchmarks/growing.py             # every preset; about four minutes on two cores
    python benchmarks/growing.py default     # one preset

Two ResNet-20 of the same widths train on the same batch of 128, one with a grower and one without, step by step in
turn; the difference of the medians is what gates, penalty and learning cost. Deciding and resizing happen once an epoch
and are reported as a share of an epoch of 391 steps (CIFAR-10). Times are processor times of one thread, so that other
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
from meristem.models.resnet_cifar import ResNetCifar
from meristem.schedule import Course

STEPS_AN_EPOCH = 391


def step_seconds(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> float:
    start = time.process_time()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.process_time() - start


def compare(name: str, repeats: int = 20) -> None:
    method = dataclasses.replace(meristem.methods()[name](), course=Course(start=1.0, grown=0.0, peak=1.0))
    torch.manual_seed(0)
    model = ResNetCifar(20)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    budget = meristem.Budget(params="100%")
    grower = meristem.Grower(model, optimizer, torch.randn(1, 3, 32, 32), budget=budget, epochs=100, method=method)
    plain = copy.deepcopy(grower.export())
    plain_optimizer = optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))
    grown, bare = [], []
    for repeat in range(repeats + 3):
        times = step_seconds(model, optimizer, x, y), step_seconds(plain, plain_optimizer, x, y)
        if repeat >= 3:
            grown.append(times[0])
            bare.append(times[1])
    step, base = statistics.median(grown), statistics.median(bare)
    start = time.process_time()
    record = grower.step()
    decision = time.process_time() - start
    print(
        f"{name}: {step * 1000:.0f} ms a step with a grower, {base * 1000:.0f} without: {step / base - 1:+.1%}; the "
        f"decision ({record['grown'] + record['recalled'] + record['detached']} units changed) takes {decision:.3f} s, "
        f"{decision / (STEPS_AN_EPOCH * base):.2%} of an epoch (bar: under 2 % together)"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or meristem.methods():
        compare(name)
