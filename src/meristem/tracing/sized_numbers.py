"""Numbers that a model computes from a size that it runs across: the softmax of attention has the scale 1 / sqrt(size).

A network with smaller heads then has another number there, as a norm across fewer units has another mean. Which size a
number follows, and by which power, is found by elimination: it must be so in every reduced model that is run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from meristem.space.arrays import IntArray
from meristem.space.space import SizedNumber
from meristem.tracing.grouping import Grouping
from meristem.tracing.observations import Observations
from meristem.tracing.run_record import Numbers, Repetition

_POWERS = (-0.5, -0.25, -1.0, 0.5, 0.25, 1.0)  # torch scales queries and keys by the fourth root of the size each
_SCALING = ("mul ", "mul_ ", "div ", "div_ ", "_scaled_dot_product")  # operations in which a number may follow a size

_Key = tuple[str, float | str | None]  # where, and the number in the full model
_Sizes = Callable[[IntArray], int]  # how many of these labels a reduced model has


@dataclass(frozen=True, eq=False)
class _Law:
    """The number goes with this power of the size of the dimension with these labels."""

    ids: IntArray
    power: float

    def ratio(self, sizes: _Sizes) -> float:
        """The number of a reduced model, in relation to that of the full one."""
        size = sizes(self.ids)
        return math.nan if size == 0 else float((size / len(self.ids)) ** self.power)


class SizedNumbers:
    """The laws that are still possible, of each number that was seen to change."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._laws: dict[_Key, list[_Law]] = {}
        self._relied_on: set[_Key] = set()

    def follows(self, key: _Key, path: str, ratio: float, sizes: _Sizes) -> bool:
        """Whether a law explains that a number of module ``path`` is so many times that of the full model here."""
        if key not in self._laws:
            across = self._observations.run_across.get(path, {}).values()
            self._laws[key] = [_Law(ids, power) for power in _POWERS for ids in across]
        self._laws[key] = [law for law in self._laws[key] if math.isclose(law.ratio(sizes), ratio, rel_tol=1e-9)]
        if self._laws[key]:
            self._relied_on.add(key)
        return bool(self._laws[key])

    def is_known(self, key: _Key) -> bool:
        return bool(self._laws.get(key))

    def give_up(self, key: _Key) -> None:
        self._laws[key] = []

    def settled(self) -> bool:
        """Whether what runs so far have relied on still holds; what no longer does is not relied on again."""
        wrong = {key for key in self._relied_on if not self._laws[key]}
        self._relied_on -= wrong
        return not wrong

    def laws(self) -> list[tuple[_Key, _Law]]:
        """The first law that is left of each number."""
        return [(key, laws[0]) for key, laws in self._laws.items() if laws]

    def marked(self) -> bool:
        """Note that the units along these sizes see each other; whether there are any."""
        found = self.laws()
        self._observations.mixed_units += [law.ids[law.ids > 0] for _, law in found]
        return bool(found)

    def described(self, grouping: Grouping) -> tuple[SizedNumber, ...]:
        """The numbers that change with the units of groups."""
        found = [(key, grouping.axis_of(law.ids), law.power) for key, law in self.laws()]
        return tuple(
            SizedNumber(where, number, axis, power)
            for (where, number), axis, power in found
            if axis.parts and isinstance(number, (int, float))
        )


@dataclass
class ExpectedNumbers:
    """The numbers that one run of a reduced model must have: those of the full model, or what follows a size."""

    repetition: Repetition
    sized: SizedNumbers
    sizes: _Sizes
    _unchanged: set[_Key] = field(default_factory=set)

    def fit(self, where: str, path: str, numbers: Numbers) -> bool:
        """Whether these are the numbers of an operation in module ``path``."""
        fits = self.repetition.has_numbers(where, numbers)
        if not where.startswith(_SCALING):
            return fits
        if fits:
            self.unchanged(where, path, numbers)
            return True
        changed = [_changed(numbers, expected) for expected in self.repetition.expected(where)]
        return any(len(pairs) == 1 and self._follows(where, path, *pairs[0]) for pairs in changed)

    def unchanged(self, where: str, path: str, numbers: Numbers) -> None:
        """Note that the numbers of an operation in module ``path`` are those of the full model."""
        if where.startswith(_SCALING):
            for number in numbers:
                self._note_unchanged((where, number), path)

    def _note_unchanged(self, key: _Key, path: str) -> None:
        self._unchanged.add(key)
        if self.sized.is_known(key):  # the same number, there or elsewhere in this module, does not follow the size
            self.sized.follows(key, path, 1.0, self.sizes)

    def _follows(self, where: str, path: str, before: float | str | None, now: float | str | None) -> bool:
        if not isinstance(before, (int, float)) or not isinstance(now, (int, float)) or not before:
            return False
        key = (where, before)
        if key in self._unchanged or not math.isfinite(now):
            self.sized.give_up(key)
            return False
        return self.sized.follows(key, path, now / before, self.sizes)


def _changed(now: Numbers, before: Numbers) -> list[tuple[float | str | None, float | str | None]]:
    """The numbers that are others, before and now; none where there are not as many."""
    if len(now) != len(before):
        return []
    return [(old, new) for old, new in zip(before, now, strict=True) if old != new]
