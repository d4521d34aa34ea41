"""A method is a composition of small frozen policies: what the units are scored by, who decides, how it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from meristem.control.controller import Controller
from meristem.control.distillation import Distillation
from meristem.control.exact import Exact
from meristem.control.first_network import GivenWidths, PlannedShare, Start
from meristem.control.importance import Importance
from meristem.control.order import InStep
from meristem.control.proportions import Proportions
from meristem.control.schedule import Schedule
from meristem.control.scores import Scores
from meristem.control.temperature import TEMPERATURES, PerUnit, Temperature
from meristem.control.text_settings import choice, flag, number
from meristem.control.width_test import NoiseTest
from meristem.cost.ledger import GROW
from meristem.errors import MeristemError
from meristem.gating.interfaces import Pressure
from meristem.gating.kinds import GATE_KINDS, PLACEMENTS, GateKind, GatePlacement, Open
from meristem.surgery.fresh import FRESH_RULES, Fresh, ZeroOutgoing


@dataclass(frozen=True)
class TrainingStage:
    """A part of the run that the ledger counts by its own name; it ends at this progress, None: at the freeze."""

    name: str
    until: float | None


@dataclass(frozen=True)
class Method:
    """How a network grows, or is pruned, or stays.

    ``scores`` rate the units, ``controller`` turns ratings into the next network, ``schedule`` is the planned cost,
    ``proportions`` say how wide groups are where nothing else decides that, ``width_test`` changes them by tests on
    held-out data, ``start`` is the first network,
    ``pressure`` acts on weights at every step, ``fresh`` is what new units start with.
    ``freeze`` is the progress from which on structure stays and gates harden. ``opening`` is how many epochs a fresh
    block takes to open; 0: it is open at once. The temperature of a unit rises with the epochs it was live, or, with
    ``counts_draws``, with the draws it came out of, as in Algorithm 1: after a draw, which itself sees the counters of
    before. ``stages`` name the parts of the run, in order. A method that
    ``ignores_budget`` trains the full network whatever the budget says; one that ``looks_at_inputs`` decides by what
    layers are given on held-out data; one that ``tries_out`` decides by short trainings of possible networks.
    ``distillation`` is what a teacher, the network as it was trained before, adds to the loss in one stage.
    """

    scores: Scores = Importance()
    controller: Controller = Exact(InStep())
    schedule: Schedule = Schedule()
    proportions: Proportions = Proportions()
    start: Start = PlannedShare()
    width_test: NoiseTest | None = None
    pressure: Pressure | None = None
    gate: GateKind = choice(Open(), GATE_KINDS)
    temperature: Temperature = choice(PerUnit(), TEMPERATURES)
    placement: GatePlacement = choice(GatePlacement.READ, PLACEMENTS)
    fresh: Fresh = choice(ZeroOutgoing(), FRESH_RULES)
    freeze: float = number(0.75)
    opening: float = number(1.0)
    counts_draws: bool = flag(False)
    stages: tuple[TrainingStage, ...] = ()
    ignores_budget: bool = False
    looks_at_inputs: bool = False
    tries_out: bool = False
    distillation: Distillation | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.freeze <= 1:
            raise MeristemError(f"freeze must be a share of the run, got {self.freeze}")
        if not 0 <= self.opening < math.inf:
            raise MeristemError(f"opening must be a number of epochs, at least 0, got {self.opening}")
        if self.gate.scales and not self.scores.trains_gates:
            kind = type(self.scores).__name__
            raise MeristemError(f"the gate {type(self.gate).__name__} needs scores that train gates, not {kind}")

    @property
    def grows(self) -> bool:
        """Whether the structure changes during the run."""
        return self.controller.grows

    @property
    def has_budget(self) -> bool:
        """Whether what it gives is meant to be compared at the budget."""
        return self.controller.has_budget and not self.ignores_budget

    @property
    def needs_held_out(self) -> bool:
        """Whether it looks at held-out data when it decides."""
        return self.looks_at_inputs or self.tries_out or self.width_test is not None

    @property
    def can_be_simulated(self) -> bool:
        """Whether a run without data can say what it does: not where it decides by what was trained."""
        return not self.looks_at_inputs and not self.tries_out and self.distillation is None

    @property
    def needs_widths(self) -> bool:
        """Whether :meth:`with_widths` must be called before it can be used."""
        return self.start.needs_widths

    def with_widths(self, widths: Mapping[str, int]) -> Method:
        """The same method, starting with these widths."""
        return replace(self, start=GivenWidths(tuple(widths.items())))

    def stage_at(self, progress: float) -> str:
        """The name of the stage in which an epoch lies that ends at this progress of growing."""
        ends = [(stage.name, self.freeze if stage.until is None else stage.until) for stage in self.stages]
        return next((name for name, end in ends if progress <= end + 1e-9), GROW)
