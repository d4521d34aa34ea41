"""What a run computes, in order: the functions that the model's code calls, and the plain numbers in them.

A reduced model must call the same functions as the full one, with the same numbers: code that takes another way at
another size computes something else, however well the sizes fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from meristem.space.absent_blocks import DROPPED
from meristem.space.paths import ancestors, is_inside
from meristem.tracing.decisions import Decision

ACROSS = "across"  # the first of the numbers that are sizes of what an operation runs across
Numbers = tuple[float | str | None, ...]  # None: any number will do there


class FunctionCall(NamedTuple):
    """A function that the code of module ``path`` calls."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.name} in {self.path or 'the model itself'}"


Event = FunctionCall | tuple[str, Numbers]  # a call, or the numbers that were noted and where


@dataclass
class RunRecord:
    """The calls of a run, the numbers by how many calls there were before and by operation, and what they decided."""

    calls: list[FunctionCall] = field(default_factory=list)
    numbers: dict[tuple[int, str], set[Numbers]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)  # of a run with real numbers

    def note(self, where: str, numbers: Numbers) -> None:
        self.numbers.setdefault((len(self.calls), where), set()).add(numbers)


class Repetition:
    """Follows the run of a reduced model and compares it with the record of the full run.

    Without the blocks in ``absent``, what their code did is not expected. Where a list is shortened, neither is it
    compared what the modules around it do, and numbers are compared by operation alone.
    """

    def __init__(self, record: RunRecord, absent: Mapping[str, str]) -> None:
        self._absent, self.decisions = list(absent), record.decisions
        dropped = [block for block, way in absent.items() if way == DROPPED]
        self._around = {path for block in dropped for path in ["", *ancestors(block)]}
        self._calls = [call for call in record.calls if self._is_compared(call.path)] if absent else record.calls
        self._numbers: Mapping[tuple[int, str], set[Numbers]] = record.numbers
        if absent:
            by_place: dict[tuple[int, str], set[Numbers]] = {}
            for (_, where), noted in record.numbers.items():
                by_place.setdefault((0, where), set()).update(noted)
            self._numbers = by_place
        self._at = 0

    def _is_compared(self, path: str) -> bool:
        return path not in self._around and not any(is_inside(path, block) or path == block for block in self._absent)

    def called(self, call: FunctionCall) -> bool:
        """Whether the full model calls the same function next."""
        if self._absent and not self._is_compared(call.path):
            return True
        self._at += 1
        return self._at <= len(self._calls) and self._calls[self._at - 1] == call

    def has_numbers(self, where: str, numbers: Numbers) -> bool:
        """Whether the full model has these numbers here; any, if it has none here."""
        expected = self.expected(where)
        return not expected or numbers in expected or any(_fits(numbers, other) for other in expected)

    def expected(self, where: str) -> set[Numbers]:
        """The numbers that the full model has here."""
        return self._numbers.get((0 if self._absent else self._at, where), set())

    def repeats(self, events: Sequence[Event]) -> bool:
        """Whether the full model shows these calls and numbers next; if not, it is as if it had not been asked."""
        before = self._at
        for event in events:
            fits = self.called(event) if isinstance(event, FunctionCall) else self.has_numbers(*event)
            if not fits:
                self._at = before
                return False
        return True

    @property
    def missing(self) -> FunctionCall | None:
        """The call that should come next."""
        return self._calls[self._at] if self._at < len(self._calls) else None


def _fits(numbers: Numbers, expected: Numbers) -> bool:
    """Whether two notes agree. How many sizes an operation runs across may change where only one position is left."""
    if len(numbers) != len(expected):
        return numbers[0] == expected[0] == ACROSS
    return all(one == two or None in (one, two) for one, two in zip(numbers, expected, strict=True))
