"""A run of several processes: what torchrun has started, and what its ranks do alike.

Every rank runs the same code. Rank 0 alone writes, and speaks to the user.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from meristem.distributed.agreement import from_rank_0, gathered, is_distributed
from meristem.errors import MeristemError

T = TypeVar("T")

LOST_CONTACT = 3  # the exit code of a rank that another one has left alone

# What the backends say when another process has gone.
_GONE = ("gloo", "nccl", "closed by peer", "connection reset", "broken pipe", "timed out")


class ReportedByRank0Error(MeristemError):
    """An error that all ranks have: rank 0 tells the user, the others end without a word."""


def launched() -> bool:
    """Whether this process is a rank that torchrun has started."""
    return torch.distributed.is_available() and torch.distributed.is_torchelastic_launched()


def restarts() -> tuple[int, int]:
    """How often torchrun has started the ranks anew, and how often it may."""
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["TORCHELASTIC_MAX_RESTARTS"])


def rank() -> int:
    return torch.distributed.get_rank() if is_distributed() else 0


def rank_count() -> int:
    return torch.distributed.get_world_size() if is_distributed() else 1


@contextmanager
def joined() -> Iterator[None]:
    """The group of all ranks inside; with GPUs each rank has its own, which is what it calls cuda."""
    store, number, count = next(rendezvous("env://"))
    # torchrun keeps the store when it starts the ranks anew, and with it the addresses of those that have died.
    store = PrefixStore(f"start {restarts()[0]}", store)
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    torch.distributed.init_process_group(backend, store=store, rank=number, world_size=count)
    # Of layers with one input channel, whose gradients may lie in memory either way.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def by_rank_0(make: Callable[[], T]) -> T:
    """What rank 0 makes, on every rank; what it refuses, every rank refuses."""
    if not is_distributed():
        return make()
    value: T | None = None
    refused: MeristemError | None = None
    if rank() == 0:
        try:
            value = make()
        except MeristemError as error:
            refused = error
    value, refused = from_rank_0((value, refused))
    if refused is not None:
        raise shared_error(refused)
    return value  # type: ignore[return-value]


def by_every_rank(make: Callable[[], T]) -> T:
    """What this rank makes, without communication; what one of them refuses, every rank refuses."""
    if not is_distributed():
        return make()
    value: T | None = None
    refused: str | None = None
    try:
        value = make()
    except MeristemError as error:
        refused = str(error)
    for number, text in enumerate(gathered(refused)):
        if text is not None:
            raise shared_error(MeristemError(text if number == 0 else f"{text} (process {number})"))
    return value  # type: ignore[return-value]


def shared_error(error: MeristemError) -> MeristemError:
    """An error that all ranks meet at the same place, as this rank raises it."""
    return error if rank() == 0 else ReportedByRank0Error(str(error))


def leads() -> bool:
    """Whether torchrun has started this process as rank 0; also known when the ranks have not met, or no more."""
    return os.environ["RANK"] == "0"


def is_lost_contact(error: RuntimeError) -> bool:
    """Whether an error says that another process has ended."""
    return isinstance(error, torch.distributed.DistError) or any(word in str(error).lower() for word in _GONE)


def check_count(wanted: int) -> None:
    """Refuse to run with another number of processes than a run has."""
    if rank_count() != wanted:
        raise shared_error(
            MeristemError(
                f"this run has {wanted} process{'es' * (wanted > 1)}, but {rank_count()} "
                f"{'are' if rank_count() > 1 else 'is'} here: how sums are added up decides the outcome; "
                + (f"give --processes {wanted}" if wanted > 1 else "leave out --processes")
            )
        )
