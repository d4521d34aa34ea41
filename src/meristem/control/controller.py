"""Controllers: from scores and the planned cost to the units that shall live. They decide; they never act."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from meristem.cost.price import Prices
from meristem.gating.interfaces import ReaderPatches, Trial
from meristem.space.arrays import BoolArray, FloatArray
from meristem.space.space import Space

# (places, random numbers) -> for each group what the layers that read it are given on held-out data
ReadersAsked = Callable[[int, np.random.Generator], Mapping[str, Sequence[ReaderPatches]]]


# (units to live, training steps, seed of their data) -> the network that was tried out
TrialAsked = Callable[[Mapping[str, BoolArray], int, int], Trial]


def _nothing_to_try(live: Mapping[str, BoolArray], steps: int, seed: int) -> Trial:
    return Trial(0.0, {})


def _nothing_held_out(places: int, rng: np.random.Generator) -> Mapping[str, Sequence[ReaderPatches]]:
    return {}


@dataclass(frozen=True)
class View:
    """What a decision may look at. ``limits`` is the planned cost of the next epoch, ``caps`` the budget, as shares.

    A unit's probability of being drawn is sigma(beta s), s its score.
    """

    scores: Mapping[str, FloatArray]
    beta: Mapping[str, FloatArray]
    live: Mapping[str, BoolArray]
    lived: Mapping[str, BoolArray]
    limits: Mapping[str, float]
    caps: Mapping[str, float]
    last: bool  # no decision comes after this one
    prices: Prices = field(repr=False)
    records: Sequence[Mapping[str, Any]] = field(default=(), repr=False)  # of the epochs so far
    first_widths: Mapping[str, int] = field(default_factory=dict, repr=False)
    multipliers: Mapping[str, float] = field(default_factory=dict, repr=False)  # the proportions of groups
    freeze: float = 1.0  # the progress at which the last decision is made
    reader_patches: ReadersAsked = field(default=_nothing_held_out, repr=False)
    try_out: TrialAsked = field(default=_nothing_to_try, repr=False)

    @property
    def widths(self) -> dict[str, int]:
        return widths_of(self.live)


@dataclass(frozen=True)
class Decision:
    """The units that shall live, what was added to all scores, and the strength of the penalty from now on.

    The filters of ``zeroed`` units are set to zero: they stay, and may recover. ``multipliers`` are the proportions of
    groups from now on; empty: as before. ``read_scales`` are factors of units, by which what reads them is multiplied.
    ``weights`` are those of a trial of exactly these units, which go on from there; empty: they keep what they have.
    """

    live: Mapping[str, BoolArray]
    push: float = 0.0
    strength: float = 0.0
    zeroed: Mapping[str, BoolArray] = field(default_factory=dict)
    multipliers: Mapping[str, float] = field(default_factory=dict)
    read_scales: Mapping[str, FloatArray] = field(default_factory=dict)
    weights: Mapping[str, Tensor] = field(default_factory=dict, repr=False)


class Controller(Protocol):
    """A rule that decides, and says what it can be used for."""

    @property
    def follows_plan(self) -> bool:
        """Whether no decision costs more than planned, as a cap on the training cost needs."""
        ...

    @property
    def uses_schedule(self) -> bool:
        """Whether the numbers of the schedule matter to its decisions."""
        ...

    @property
    def has_budget(self) -> bool:
        """Whether its network is meant to be compared at the budget; otherwise it finds its size by itself."""
        ...

    @property
    def grows(self) -> bool:
        """Whether it changes the structure at all."""
        ...

    @property
    def keeps_proportions(self) -> bool:
        """Whether groups always keep the method's proportions, so that the widths follow from the budget."""
        ...

    def check(self, space: Space) -> None:
        """Refuse a space on which it has nothing to do."""
        ...

    def strength(
        self, prices: Prices, widths: Mapping[str, int], caps: Mapping[str, float], first: Mapping[str, int]
    ) -> float:
        """The strength of the penalty with which a network of these widths is trained; ``first`` are the first ones."""
        ...

    def decide(self, view: View, rng: np.random.Generator) -> Decision: ...


class Traits:
    """What most controllers say of themselves; one that differs overrides it."""

    follows_plan = False
    uses_schedule = False
    has_budget = True
    grows = True

    @property
    def keeps_proportions(self) -> bool:
        return False

    def check(self, space: Space) -> None: ...

    def strength(
        self, prices: Prices, widths: Mapping[str, int], caps: Mapping[str, float], first: Mapping[str, int]
    ) -> float:
        return 0.0


@dataclass(frozen=True)
class FixedStructure(Traits):
    """Structure stays as it started: a network of fixed size behind the grower's face."""

    follows_plan = True
    grows = False

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        return Decision(view.live)


def widths_of(masks: Mapping[str, BoolArray]) -> dict[str, int]:
    """How many units of each group are live."""
    return {name: int(mask.sum()) for name, mask in masks.items()}
