"""What a run trains on: the data as a run sees them, and the settings they are read with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Protocol

import torch
from torch import Tensor

from meristem_bench.runs.settings import Count, at_most, check_settings


class Data(Protocol):
    """Batches of inputs and targets. Errors of the data's own are ValueErrors.

    Data that find out by themselves how many classes there are (the words of a text) say so in ``classes``.
    """

    @property
    def example(self) -> tuple[Tensor, ...]:
        """One sample, as the model is called with it."""
        ...

    def steps(self, batch: int) -> int:
        """Training steps in an epoch."""
        ...

    def train(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch; all randomness comes from the generator."""
        ...

    def has(self, split: str) -> bool:
        """Whether there is anything in ``validation``; ``test`` is always there."""
        ...

    def evaluate(self, split: str, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole of ``validation`` or ``test``, always in the same order."""
        ...


@dataclass(frozen=True)
class DataConfig:
    """Which data are read, and how; what a recipe's ``load`` goes by."""

    data_dir: str | None = None
    classes: Count = 0  # 0: as many as the recipe's model has
    held_out: Count = 0  # training samples that are set aside for validation
    samples: Count = 0  # training samples that are used; 0: all
    size: Count = 0  # of input images, in pixels; 0: as the data have it
    workers: Annotated[Count, at_most(1024)] = 0  # processes that read files, for data that do not fit into memory
    context: Count = 0  # tokens of a window of text that a step reads without a state; 0: the data are no such windows
    unroll: Count = 0  # words of each stream in a step, with a state carried from step to step; 0: there is no state

    def __post_init__(self) -> None:
        check_settings(self)
