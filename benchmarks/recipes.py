"""The recipes at full size, and whether their data keep up; measured in one run on one machine.

    python benchmarks/recipes.py input                                # CIFAR-10's augmentation beside a ResNet-20 step
    python benchmarks/recipes.py input --images FOLDER                # class folders too, at 224 pixels
    python benchmarks/recipes.py steps NAME --data DIR [--set ...]    # the first steps of a full recipe

`steps` starts from one filter in every layer, as the paper does, and tells the time of the first steps and the largest
memory the process had. It stops before an epoch is over; nothing is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from meristem.cost.memory import peak_bytes
from meristem_bench.data.arrays import Arrays
from meristem_bench.data.augment import flipped, shifted
from meristem_bench.data.class_folders import class_folders
from meristem_bench.data.classification_views import CentreView, TrainView
from meristem_bench.models.resnet_cifar import resnet20
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.loop import train_epoch
from meristem_bench.runs.training import build

BATCH = 128


class EnoughError(Exception):
    """So many steps were made."""


class Watch:
    def __init__(self, steps: int) -> None:
        self.steps, self.times = steps, [time.perf_counter()]

    def batch(self, step: int, steps: int) -> None:
        self.times.append(time.perf_counter())
        if step == self.steps:
            raise EnoughError


def first_steps(args: argparse.Namespace) -> None:
    settings = dict(pair.partition("=")[::2] for pair in args.set)
    settings = {"method": "paper", "data_dir": str(Path(args.data).resolve()), **settings}
    run = find_run(args.recipe).with_settings(settings)
    start = time.perf_counter()
    training = build(run, None)
    grower = training.grower
    print(f"{run.name}: built in {time.perf_counter() - start:.1f} s; widths of the first epoch:", end=" ")
    print(f"{min(grower.widths.values())} to {max(grower.widths.values())} in {len(grower.widths)} groups")
    watch = Watch(args.steps)
    with contextlib.suppress(EnoughError):
        train_epoch(training, watch)  # type: ignore[arg-type]
    took = [after - before for before, after in zip(watch.times, watch.times[1:], strict=False)]
    print(f"steps of {run.batch} samples: {', '.join(f'{seconds:.2f}' for seconds in took)} s", end="; ")
    print(f"largest memory: {peak_bytes(torch.device('cpu')) / 2**30:.2f} GiB")


def input_speed(args: argparse.Namespace) -> None:
    images = torch.randn(10_000, 3, 32, 32)
    data = Arrays(
        {"train": (images, torch.zeros(10_000, dtype=torch.long)), "test": (images[:1], torch.zeros(1).long())},
        augment=lambda batch, generator: flipped(shifted(batch, 4, generator), generator),
    )
    model = resnet20()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x, y = images[:BATCH], torch.zeros(BATCH, dtype=torch.long)

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    reading, steps = [], []
    for repeat in range(5):  # in turn, so that both meet the same machine
        batches = data.train(BATCH, torch.Generator().manual_seed(repeat))
        reading.append(seconds(lambda batches=batches: list(itertools.islice(batches, 20))) / 20)
        steps.append(seconds(step))
    fed, used = BATCH / statistics.median(reading), BATCH / statistics.median(steps)
    print(
        f"CIFAR-10 crop and mirror: {fed:,.0f} images/s; a ResNet-20 step consumes {used:,.0f}: {fed / used:.0f} times"
    )
    if args.images:
        split = class_folders(args.images, TrainView(), CentreView())["train"]
        rows = np.random.default_rng(0).integers(0, len(split), 100)
        took = seconds(lambda: [split.load(int(row), np.random.default_rng(row)) for row in rows])
        print(f"class folders, training view of 224 pixels: {len(rows) / took:.0f} images/s a process")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    speed = parts.add_parser("input")
    speed.add_argument("--images", metavar="FOLDER")
    speed.set_defaults(part=input_speed)
    steps = parts.add_parser("steps")
    steps.add_argument("recipe")
    steps.add_argument("--data", required=True)
    steps.add_argument("--steps", type=int, default=3)
    steps.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    steps.set_defaults(part=first_steps)
    args = parser.parse_args()
    args.part(args)


if __name__ == "__main__":
    main()
