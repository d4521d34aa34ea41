"""Those who follow a run as it goes: the terminal, TensorBoard, a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from meristem.grower import Grower
from meristem.history import Record
from meristem_bench.runs.run import Run


class RunObserver(Protocol):
    """Is told what happens in a run, and may end it by raising."""

    def start(self, run: Run, grower: Grower) -> None:
        """The run starts, or goes on where its grower stands."""
        ...

    def note(self, text: str) -> None:
        """Something about how the run was made that its user should know; told when it starts, not when it goes on."""
        ...

    def batch(self, step: int, steps: int) -> None:
        """A training step of an epoch is done."""
        ...

    def epoch(self, record: Record) -> None:
        """An epoch is done and kept."""
        ...


class Silent:
    """Says nothing: for all ranks but the first."""

    def start(self, run: Run, grower: Grower) -> None: ...

    def note(self, text: str) -> None: ...

    def batch(self, step: int, steps: int) -> None: ...

    def epoch(self, record: Record) -> None: ...


@dataclass(frozen=True)
class RunObservers:
    """Several observers as one, in order."""

    observers: tuple[RunObserver, ...]

    def start(self, run: Run, grower: Grower) -> None:
        for observer in self.observers:
            observer.start(run, grower)

    def note(self, text: str) -> None:
        for observer in self.observers:
            observer.note(text)

    def batch(self, step: int, steps: int) -> None:
        for observer in self.observers:
            observer.batch(step, steps)

    def epoch(self, record: Record) -> None:
        for observer in self.observers:
            observer.epoch(record)
