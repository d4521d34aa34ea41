"""A minute on a laptop: handwritten digits that come with the package."""

from __future__ import annotations

import torch
from torch import Tensor

from meristem.control.budget import Budget
from meristem_bench.data import digits as source
from meristem_bench.data.arrays import Arrays
from meristem_bench.data.augment import shifted
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.runs import GrowthConfig, Machine, OptimizerConfig, Run
from meristem_bench.runs.task import Classification


def digits() -> Run:
    return Run(
        name="digits",
        about="A ResNet-14 on 8x8 handwritten digits, about a minute on two cores; the data are included.",
        model=lambda: ResNetCifar(depth=14, classes=10, channels=1, width=16),
        load=_load,
        task=Classification(),
        epochs=100,
        batch=64,
        optimizer=OptimizerConfig(lr=0.1, weight_decay=5e-4),
        growth=GrowthConfig(Budget(params="36%")),
        machine=Machine(threads=1),  # layers too small to share: a second thread would only wait, and change the sums
    )


def _load(run: Run) -> Arrays:
    if run.data.held_out or run.data.samples or run.data.size:
        raise ValueError("the digits come with splits of their own: leave out held_out, samples and size")
    return Arrays(source.digits(), augment=_moved)


def _moved(images: Tensor, generator: torch.Generator) -> Tensor:
    return shifted(images, 1, generator, fill=source.BLANK)
