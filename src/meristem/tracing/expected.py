"""What the run of a reduced model must repeat of the full run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meristem.space.arrays import IntArray
from meristem.tracing.run_record import Event, FunctionCall, Repetition
from meristem.tracing.sized_numbers import ExpectedNumbers


@dataclass(frozen=True)
class Expected:
    """Its calls and numbers, and what was cut out."""

    repetition: Repetition
    cuts: Mapping[str, Sequence[IntArray]]
    numbers: ExpectedNumbers

    def repeats(self, events: Sequence[Event], path: str) -> bool:
        """Whether the full model shows these events of module ``path`` next; if not, nothing has happened."""
        if not self.repetition.repeats(events):
            return False
        for event in events:
            if not isinstance(event, FunctionCall):
                self.numbers.unchanged(event[0], path, event[1])
        return True
