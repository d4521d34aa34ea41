"""Learning-rate schedules: functions of progress, which runs from 0 to 1 over a run, so its length does not matter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from meristem.errors import MeristemError

_FORMS = (
    "cosine, constant, polynomial^0.9, held@0.7 (constant for 0.7 of the run, then down to 0 in a line), "
    "steps/10@0.5,0.75 (divided by 10 at half and at three quarters of the run), or "
    "decay/2@4/13 (constant for 4 of 13 epochs, then divided by 2 at the start of each other one)"
)


@runtime_checkable
class LrSchedule(Protocol):
    """``str`` of a schedule is what `parse_lr_schedule` reads back."""

    def factor(self, progress: float) -> float:
        """What the initial learning rate is multiplied by."""
        ...


@dataclass(frozen=True)
class Cosine:
    """Falls along half a cosine to 0."""

    def factor(self, progress: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * progress))

    def __str__(self) -> str:
        return "cosine"


@dataclass(frozen=True)
class Constant:
    """Never changes."""

    def factor(self, progress: float) -> float:
        return 1.0

    def __str__(self) -> str:
        return "constant"


@dataclass(frozen=True)
class Polynomial:
    """Falls to 0 as a power of what is left of the run."""

    power: float = 0.9

    def factor(self, progress: float) -> float:
        return float(max(0.0, 1 - progress) ** self.power)

    def __str__(self) -> str:
        return f"polynomial^{_text(self.power)}"


@dataclass(frozen=True)
class Held:
    """Constant until a moment, then falls to 0 in a line: what grows late learns at the full rate.

    >>> Held(0.5).factor(0.4), Held(0.5).factor(0.75), str(Held(0.5))
    (1.0, 0.5, 'held@0.5')
    """

    until: float

    def factor(self, progress: float) -> float:
        return min(1.0, max(0.0, 1 - progress) / (1 - self.until))

    def __str__(self) -> str:
        return f"held@{_text(self.until)}"


@dataclass(frozen=True)
class Steps:
    """Divided by ``divisor`` at each of the given moments.

    >>> Steps(10, (0.5, 0.75)).factor(0.6), str(Steps(10, (0.5, 0.75)))
    (0.1, 'steps/10@0.5,0.75')
    """

    divisor: float
    at: tuple[float, ...]

    def factor(self, progress: float) -> float:
        return float(self.divisor ** -sum(progress >= moment for moment in self.at))

    def __str__(self) -> str:
        return f"steps/{_text(self.divisor)}@{','.join(map(_text, self.at))}"


@dataclass(frozen=True)
class Decay:
    """Constant for ``after`` of ``of`` epochs, then divided by ``divisor`` at the start of each of the others.

    In a run of another length the epochs that are meant here are longer or shorter than its own.

    >>> Decay(2, 4, 13).factor(3 / 13), Decay(2, 4, 13).factor(4 / 13), str(Decay(2, 4, 13))
    (1.0, 0.5, 'decay/2@4/13')
    """

    divisor: float
    after: int
    of: int

    def factor(self, progress: float) -> float:
        started = math.floor(progress * self.of + 1e-9) + 1  # rounding may leave it short of a whole epoch
        return float(self.divisor ** -max(0, started - self.after))

    def __str__(self) -> str:
        return f"decay/{_text(self.divisor)}@{self.after}/{self.of}"


def parse_lr_schedule(text: str) -> LrSchedule:
    """The schedule that a text stands for.

    >>> parse_lr_schedule("steps/5@0.3,0.6").factor(0.7)
    0.04
    """
    name, _, rest = text.replace("^", "/").partition("/")
    try:
        if text.startswith("held@"):
            until = _positive(text.removeprefix("held@"))
            return Held(until) if until < 1 else _refused(text)
        if name in ("cosine", "constant") and text == name:
            return Cosine() if name == "cosine" else Constant()
        if name == "polynomial":
            return Polynomial(_positive(rest)) if "^" in text else _refused(text)
        if name == "steps" and "@" in rest:
            divisor, _, moments = rest.partition("@")
            at = tuple(sorted(_positive(moment) for moment in moments.split(",")))
            return Steps(_positive(divisor), at) if at[-1] < 1 else _refused(text)
        if name == "decay" and "@" in rest and "^" not in text:
            divisor, _, share = rest.partition("@")
            after, of = map(int, share.split("/"))
            return Decay(_positive(divisor), after, of) if 0 < after < of else _refused(text)
    except ValueError:
        pass
    return _refused(text)


def factor_with_warmup(schedule: LrSchedule, step: int, steps: int, warmup_steps: int) -> float:
    """The factor at a step; over the first ``warmup_steps`` it rises linearly from almost nothing."""
    return schedule.factor(step / steps) * min(1.0, (step + 1) / (warmup_steps + 1))


def _text(value: float) -> str:
    """Short where nothing is lost by it: a run that is resumed must divide at the very same step."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def _refused(text: str) -> LrSchedule:
    raise MeristemError(f"a learning rate cannot follow {text!r}; write {_FORMS}")
