"""Data that fits in memory: tensors in three splits, handed out as batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

Augment = Callable[[Tensor, torch.Generator], Tensor]
Splits = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Arrays:
    """Inputs and targets of the splits ``train``, ``test`` and perhaps ``validation``, one row per sample."""

    splits: Mapping[str, tuple[Tensor, Tensor]]
    augment: Augment | None = None

    def __post_init__(self) -> None:
        for name in dict.fromkeys(("train", "test", *self.splits)):
            if name not in self.splits:
                raise ValueError(f"there is no {name} split, only {', '.join(self.splits) or 'none at all'}")
            inputs, targets = cast(tuple[Any, Any], self.splits[name])  # a user's own may hold anything
            if not (isinstance(inputs, Tensor) and isinstance(targets, Tensor)):
                kinds = f"{type(inputs).__name__} and {type(targets).__name__}"
                raise ValueError(f"inputs and targets must be tensors, but the {name} split has {kinds}")
            if len(inputs) != len(targets) or not len(inputs):
                raise ValueError(f"the {name} split has {len(inputs)} inputs and {len(targets)} targets")

    @property
    def example(self) -> tuple[Tensor, ...]:
        """One sample as the model is called with it."""
        return (self.splits["train"][0][:1].clone(),)

    def has(self, split: str) -> bool:
        return split in self.splits

    def samples(self, split: str) -> int:
        return len(self.splits[split][0])

    def steps(self, batch: int) -> int:
        """How many training steps an epoch has."""
        if batch > self.samples("train"):
            raise ValueError(f"a batch of {batch} is larger than the {self.samples('train')} training samples")
        return self.samples("train") // batch

    def train(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch in a fresh order, augmented. Samples that fill no batch are left out, others in each epoch.

        All batches have one size, so that the cost of a step is known before the run and no norm sees a single sample.
        """
        inputs, targets = self.splits["train"]
        order = torch.randperm(len(inputs), generator=generator)
        for step in range(self.steps(batch)):
            rows = order[step * batch : (step + 1) * batch]
            batch_inputs = inputs[rows]
            yield (self.augment(batch_inputs, generator) if self.augment else batch_inputs), targets[rows]

    def evaluate(self, split: str, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples of a split, in their own order, as they are."""
        inputs, targets = self.splits[split]
        for start in range(0, len(inputs), batch):
            yield inputs[start : start + batch], targets[start : start + batch]


def split_validation(where: Path, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], held_out: int) -> Splits:
    """The splits; the last ``held_out`` training samples become ``validation``, if that is not 0."""
    if not 0 <= held_out < len(train[1]):
        raise ValueError(f"{where} has {len(train[1])} training images: {held_out} of them cannot be held out")
    if not held_out:
        return {"train": train, "test": test}
    inputs, targets = train
    return {
        "train": (inputs[:-held_out], targets[:-held_out]),
        "validation": (inputs[-held_out:], targets[-held_out:]),
        "test": test,
    }
