"""Data that is read sample by sample as it is needed, by other processes if wanted, handed out as batches.

The order of an epoch and one seed per sample are drawn from the generator before anything is read, and a sample's
randomness comes from its own seed only. So the batches, and the generator after an epoch, are the same bit for bit
whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from meristem_bench.data.worker_signals import ignore_interrupts, interrupts_deferred, quiet_start

_Key = tuple[int, int | None]  # which sample, and its seed


class Samples(Protocol):
    """The samples of a split. With workers they are copied to other processes, so they must be picklable."""

    def __len__(self) -> int: ...

    def load(self, index: int, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        """Input and target of one sample, augmented; without ``rng``: as it is evaluated. Errors are ValueErrors."""
        ...


@dataclass(frozen=True)
class Streamed:
    """Samples of the splits ``train``, ``test`` and perhaps ``validation``."""

    splits: Mapping[str, Samples]
    workers: int = 0  # processes that read; 0: this one reads, while it does nothing else
    pin: bool = False  # whether workers leave batches in memory from which a GPU copies by itself
    start: str | None = None  # how processes are started: "fork", "spawn", "forkserver"; None: as usual on the platform
    share: tuple[int, int] = (0, 1)  # which part of every batch is read, and how many parts there are

    def __post_init__(self) -> None:
        for name in dict.fromkeys(("train", "test", *self.splits)):
            if name not in self.splits or not len(self.splits[name]):
                raise ValueError(f"there are no samples in the {name} split")
        if self.workers < 0:
            raise ValueError(f"workers must be a number of at least 0, got {self.workers}")

    @property
    def example(self) -> tuple[Tensor, ...]:
        """One sample as the model is called with it while it trains."""
        return (self.splits["train"].load(0, np.random.default_rng(0))[0][None],)

    def shared(self, rank: int, ranks: int) -> Streamed:
        """Those of which only the rows of one of several processes are read, in every batch."""
        return replace(self, share=(rank, ranks))

    def has(self, split: str) -> bool:
        return split in self.splits

    def samples(self, split: str) -> int:
        return len(self.splits[split])

    def steps(self, batch: int) -> int:
        """How many training steps an epoch has."""
        if batch > self.samples("train"):
            raise ValueError(f"a batch of {batch} is larger than the {self.samples('train')} training samples")
        return self.samples("train") // batch

    def train(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch in a fresh order, augmented. Samples that fill no batch are left out, others in each epoch."""
        order = torch.randperm(self.samples("train"), generator=generator)
        seeds = torch.randint(-(2**63), 2**63 - 1, order.shape, generator=generator)
        used = self.steps(batch) * batch
        keys = (
            [(row, seed % 2**64) for row, seed in zip(order[rows].tolist(), seeds[rows].tolist(), strict=True)]
            for rows in _slices(used, batch)
        )
        yield from self._batches("train", keys)

    def evaluate(self, split: str, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples of a split, in their own order, as they are."""
        count = self.samples(split)
        keys: Iterator[list[_Key]] = ([(row, None) for row in range(count)[rows]] for rows in _slices(count, batch))
        yield from self._batches(split, keys)

    def _batches(self, split: str, keys: Iterable[list[_Key]]) -> Iterator[tuple[Tensor, Tensor]]:
        part, parts = self.share
        shares = (batch[part * len(batch) // parts : (part + 1) * len(batch) // parts] for batch in keys)
        keys = (share for share in shares if share)
        with self._workers_of(split, keys) as batches:
            while True:
                try:
                    batch = next(batches, None)
                except RuntimeError as error:
                    if "exited unexpectedly" not in str(error) and "killed by signal" not in str(error):
                        raise
                    raise ValueError(
                        f"a process that reads {split} samples was killed, perhaps for want of memory; use fewer "
                        f"workers than {self.workers}"
                    ) from None
                if batch is None:
                    return
                if isinstance(batch, _Failure):
                    raise ValueError(batch.message)
                yield batch

    @contextmanager
    def _workers_of(self, split: str, keys: Iterable[list[_Key]]) -> Iterator[Iterator[Any]]:
        """The batches of workers, which are ended when no more batches are wanted, whatever the reason."""
        batches: Iterator[Any] | None = None
        try:
            with quiet_start():  # a deferred interrupt is raised at its end, when there are workers to end
                batches = iter(self._loader(split, keys))
            yield batches
        finally:
            # torch does this when nothing refers to them any more; a traceback that is kept would put that off.
            end = getattr(batches, "_shutdown_workers", None)
            if end is not None:
                with interrupts_deferred():  # a second Ctrl-C must not leave them half-ended
                    end()

    def _loader(self, split: str, keys: Iterable[list[_Key]]) -> DataLoader[Any]:
        batches: Any = keys  # torch types indices as numbers, but passes on anything
        return DataLoader(
            _Keyed(self.splits[split]),
            batch_sampler=batches,
            num_workers=self.workers,
            pin_memory=self.pin and self.workers > 0,
            collate_fn=_collate,
            worker_init_fn=ignore_interrupts,
            multiprocessing_context=self.start if self.workers else None,
            generator=torch.Generator(),  # torch draws a seed that is not used here: the global state must not change
        )


@dataclass(frozen=True)
class _Failure:
    """An error as a value: one that is raised in a worker would arrive with a traceback in its message."""

    message: str


@dataclass(frozen=True)
class _Keyed(Dataset[Any]):
    """The samples as torch's data set, indexed by keys."""

    samples: Samples

    def __getitem__(self, key: _Key) -> tuple[Tensor, Tensor] | _Failure:
        index, seed = key
        try:
            return self.samples.load(index, None if seed is None else np.random.default_rng(seed))
        except ValueError as error:
            return _Failure(str(error))


def _collate(samples: list[tuple[Tensor, Tensor] | _Failure]) -> tuple[Tensor, Tensor] | _Failure:
    for sample in samples:
        if isinstance(sample, _Failure):
            return sample
    inputs, targets = default_collate(samples)
    return inputs, targets


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
