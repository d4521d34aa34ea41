"""Data of which each of several processes is given its rows: together they see what one process would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from meristem.errors import MeristemError
from meristem_bench.runs.data import Data
from meristem_bench.runs.run import Run

Batches = Iterator[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class SharedData:
    """The rows of every batch that one of ``ranks`` processes is given: the first ones, the next ones, and so on.

    Order and augmentation are drawn for the whole batch, on every rank alike. Data that would read what they do not
    hand out (images from files) have a method ``shared(rank, ranks)`` of their own.
    """

    data: Data
    rank: int
    ranks: int

    @property
    def classes(self) -> int:
        return int(getattr(self.data, "classes", 0))

    @property
    def example(self) -> tuple[Tensor, ...]:
        return self.data.example

    def steps(self, batch: int) -> int:
        return self.data.steps(batch)

    def has(self, split: str) -> bool:
        return self.data.has(split)

    def train(self, batch: int, generator: torch.Generator) -> Batches:
        return self._mine(self.data.train(batch, generator))

    def evaluate(self, split: str, batch: int) -> Batches:
        return self._mine(self.data.evaluate(split, batch))

    def _mine(self, batches: Batches) -> Batches:
        for inputs, targets in batches:
            mine = rows(len(inputs), self.rank, self.ranks)
            if mine.stop > mine.start:  # the last batch of a split may have fewer rows than there are processes
                yield inputs[mine], targets[mine]


def rows(count: int, rank: int, ranks: int) -> slice:
    """
    >>> [rows(8, rank, 2) for rank in range(2)]
    [slice(0, 4, None), slice(4, 8, None)]
    """
    return slice(rank * count // ranks, (rank + 1) * count // ranks)


def sharing_notes(run: Run, model: nn.Module) -> tuple[str, ...]:
    """What the user of a run of several processes should know: what a batch is, and what norms over it see."""
    ranks = run.machine.processes
    if ranks == 1:
        return ()
    notes = [
        f"{ranks} processes: each step has {run.batch} samples, {run.batch // ranks} in each process, and the "
        f"learning rate is that of all of them, {run.optimizer.lr:g}"
    ]
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        notes.append(
            f"Batch norms see the {run.batch // ranks} samples of their own process; those of process 0 keep the "
            f"running statistics. So the losses are not those of one process"
        )
    return tuple(notes)


def shared_data(data: Data, batch: int, rank: int, ranks: int) -> Data:
    """What one of several processes reads; refuses a batch that cannot be shared out evenly."""
    if ranks == 1:
        return data
    if batch % ranks:
        lower = batch - batch % ranks
        raise MeristemError(
            f"a batch of {batch} samples cannot be shared evenly by {ranks} processes: --set batch="
            f"{lower or ranks}, or another number of processes"
        )
    own: Any = getattr(data, "shared", None)
    shared: Data = own(rank, ranks) if callable(own) else SharedData(data, rank, ranks)
    return shared
