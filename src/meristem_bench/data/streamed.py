"""Data that is read sample by sample as it is needed, by other processes if wanted, handed out as batches.

The order of an epoch and one seed a sample are drawn from the generator before anything is read, and a sample's
randomness comes from its own seed only. So the batches, and the generator after an epoch, are the same bit for bit
whatever the number of workers.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

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
    start: str | None = None  # how processes are started: "fork", "spawn", "forkserver"; None: as usual on the platform

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
        """One epoch in a fresh order, augmented. What does not fill a batch is left out: another part each epoch."""
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
        as_they_are: Iterator[list[_Key]] = (
            [(row, None) for row in range(count)[rows]] for rows in _slices(count, batch)
        )
        yield from self._batches(split, as_they_are)

    def _batches(self, split: str, keys: Iterable[list[_Key]]) -> Iterator[tuple[Tensor, Tensor]]:
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
        """Starts the workers, and ends them when no more batches are wanted, whatever the reason."""
        batches: Iterator[Any] | None = None
        try:
            with _quiet_start():  # an interrupt that has waited is raised at its end, when there are workers to end
                batches = iter(self._loader(split, keys))
            yield batches
        finally:
            # torch does this when nothing refers to them any more; a traceback that is kept would put that off.
            end = getattr(batches, "_shutdown_workers", None)
            if end is not None:
                with _interrupts_wait():  # a second Ctrl-C must not leave them half-ended
                    end()

    def _loader(self, split: str, keys: Iterable[list[_Key]]) -> DataLoader[Any]:
        batches: Any = keys  # torch asks for indices that are numbers, but hands on whatever there is
        return DataLoader(
            _Keyed(self.splits[split]),
            batch_sampler=batches,
            num_workers=self.workers,
            collate_fn=_joined,
            worker_init_fn=_deaf_to_interrupts,
            multiprocessing_context=self.start if self.workers else None,
            generator=torch.Generator(),  # its own draw is used for nothing here, and must not disturb the global state
        )


@dataclass(frozen=True)
class _Failure:
    """An error as a value: one that is raised in a worker would arrive with a traceback in its message."""

    message: str


@dataclass(frozen=True)
class _Keyed(Dataset[Any]):
    """What a worker does for one key."""

    samples: Samples

    def __getitem__(self, key: _Key) -> tuple[Tensor, Tensor] | _Failure:
        index, seed = key
        try:
            return self.samples.load(index, None if seed is None else np.random.default_rng(seed))
        except ValueError as error:
            return _Failure(str(error))


def _joined(samples: list[tuple[Tensor, Tensor] | _Failure]) -> tuple[Tensor, Tensor] | _Failure:
    for sample in samples:
        if isinstance(sample, _Failure):
            return sample
    inputs, targets = default_collate(samples)
    return inputs, targets


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


# --- processes ---


@contextmanager
def _quiet_start() -> Iterator[None]:
    """While workers start, an interrupt waits, so that none is met half-started and complains.

    torch's handler of dying children is put back: it raises wherever the main thread happens to be, in a training step,
    say. Without it torch looks for dead workers when a batch does not come.
    """
    handler = signal.getsignal(signal.SIGCHLD) if _may_set_signals() else None
    try:
        with _interrupts_wait(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)  # workers use one thread only
            warnings.filterwarnings("ignore", ".*suggested max number of worker", UserWarning)  # the user's own choice
            yield
    finally:
        if handler is not None:  # it is also None if something else than Python had set it
            signal.signal(signal.SIGCHLD, handler)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """An interrupt in between is heard at the end.

    The mask is for processes that are started meanwhile, which inherit it. It holds for one thread only, and Python
    runs the handler whichever thread the system picks: so there is another handler, too.
    """
    before = signal.getsignal(signal.SIGINT) if _may_set_signals() else None
    if before is None:
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append((number, frame)))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # what has waited is heard now
        signal.signal(signal.SIGINT, before)
        if heard and callable(before):
            before(*heard[0])


def _may_set_signals() -> bool:
    return threading.current_thread() is threading.main_thread() and sys.platform != "win32"


def _deaf_to_interrupts(worker: int) -> None:
    """Ctrl-C reaches all processes of a terminal; the parent ends its workers itself.

    It may do so in the middle of taking a batch. The thread that hands batches over then tells of a broken connection,
    through the hook, which is of interest to nobody.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _but_for_broken_connections


def _but_for_broken_connections(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, traceback)
