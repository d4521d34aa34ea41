"""The decider: everything of one run that leads to a decision, and no model. It decides; it never acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from meristem.control.budget import Budget
from meristem.control.controller import Decision, View, widths_of
from meristem.control.first_scores import PAPER_STEPS, FirstNetwork
from meristem.control.method import Method
from meristem.control.scores import EpochStart, ScoresStart, StageTime
from meristem.control.trajectory import plan_trajectory
from meristem.control.unnamed_cost import Range, in_step_range, possible_range
from meristem.cost.ledger import FINE_TUNE
from meristem.cost.price import Prices
from meristem.distributed.agreement import broadcast_arrays, broadcast_masks, broadcast_numbers, mean_of_numbers
from meristem.gating.interfaces import Signals, Trial
from meristem.space.arrays import BoolArray, FloatArray
from meristem.space.space import Space


@dataclass(frozen=True)
class Progress:
    """How far a run is. ``epoch`` counts finished epochs, ``steps`` the optimizer steps of the present one.

    ``steps_planned`` is how many steps growing takes if every epoch has as many as the last one. ``drawn`` counts for
    every unit the epochs in which it was live, ``lr_fracs`` sums the learning rate over its start over epochs, and
    ``spent`` the macs of the networks so far as shares of the dense one.
    """

    drawn: Mapping[str, FloatArray]
    epoch: int = 0
    steps: int = 0
    steps_planned: int = PAPER_STEPS
    lr_fracs: float = 0.0
    spent: float = 0.0

    def after_step(self) -> Progress:
        return replace(self, steps=self.steps + 1)

    def with_steps(self, steps: int) -> Progress:
        """The present epoch has had so many steps."""
        return replace(self, steps=steps)

    def with_drawn(self, masks: Mapping[str, BoolArray]) -> Progress:
        """These units were drawn to live."""
        return replace(self, drawn={**self.drawn, **{name: self.drawn[name] + mask for name, mask in masks.items()}})

    def after_epoch(self, active: Mapping[str, BoolArray], lr_frac: float, epochs: int, macs_frac: float) -> Progress:
        """The present epoch is over; of ``epochs`` of growing, fine-tuning does not make units older."""
        growing = self.epoch < epochs
        return Progress(
            drawn={name: self.drawn[name] + mask for name, mask in active.items()} if growing else self.drawn,
            epoch=self.epoch + 1,
            steps=0,
            steps_planned=self.steps * epochs,
            lr_fracs=self.lr_fracs + lr_frac if growing else self.lr_fracs,
            spent=self.spent + macs_frac,
        )


@dataclass(frozen=True)
class LiveUnits:
    """Which units are live, which have ever been, and which groups lie in absent blocks."""

    masks: Mapping[str, BoolArray]
    lived: Mapping[str, BoolArray]
    inactive: frozenset[str]

    @property
    def active(self) -> dict[str, BoolArray]:
        """The live units that take part."""
        return {name: mask & (name not in self.inactive) for name, mask in self.masks.items()}


class Decider:
    """The plan of a run, the scores of its units, and the controller's random numbers."""

    def __init__(self, method: Method, space: Space, budget: Budget, epochs: int, fine_tune: int, seed: int) -> None:
        self.method, self.space, self.epochs, self.fine_tune = method, space, epochs, fine_tune
        self.prices = Prices(space)
        self.trajectory = plan_trajectory(
            budget, method.schedule, self.prices, method.freeze, epochs, fine_tune, method.proportions
        )
        self.multipliers: Mapping[str, float] = self.trajectory.multipliers  # the proportions of groups
        self.first_units = method.start.units(self.prices, self.trajectory)
        self.rng = np.random.default_rng(seed)
        masks = {name: np.isin(np.arange(group.units), self.first_units[name]) for name, group in space.groups.items()}
        first = FirstNetwork(masks, self.prices, self.trajectory.caps)
        self.keeper = method.scores.keeper(ScoresStart(first, self.rng, method.gate))
        self.steps_per_epoch: int | None = None  # None: unknown until the first epoch is over
        self._first_widths = {name: len(units) for name, units in self.first_units.items()}
        # Of the width penalty in the present epoch.
        self.strength = method.controller.strength(
            self.prices, self._first_widths, self.trajectory.caps, self._first_widths
        )

    @property
    def first_progress(self) -> Progress:
        drawn = {name: np.zeros(group.units) for name, group in self.space.groups.items()}
        return Progress(drawn, steps_planned=(self.steps_per_epoch or 0) * self.epochs or PAPER_STEPS)

    def after_epoch(self, progress: Progress, active: Mapping[str, BoolArray], lr_frac: float) -> Progress:
        """The progress after the epoch under way, with these units active, as the next decision sees it."""
        nobody = {name: np.zeros_like(mask) for name, mask in active.items()}
        macs_frac = self.prices.share("macs", widths_of(active))
        return progress.after_epoch(nobody if self.method.counts_draws else active, lr_frac, self.epochs, macs_frac)

    def accept(self, progress: Progress, decision: Decision | None) -> Progress:
        """The network that was decided is going to be made; returns the progress with which it is trained."""
        if decision is None:
            return progress
        self.keeper.push(decision.push)
        self.multipliers = decision.multipliers or self.multipliers
        return progress.with_drawn(decision.live) if self.method.counts_draws else progress

    def growing(self, epoch: int) -> bool:
        """Whether the epoch after ``epoch`` finished ones is one of growing, not of fine-tuning."""
        return epoch < self.epochs

    def stage(self, epoch: int) -> str:
        """The name under which the ledger counts the epoch after ``epoch`` finished ones."""
        return self.method.stage_at((epoch + 1) / self.epochs) if self.growing(epoch) else FINE_TUNE

    def planned(self, epoch: int) -> dict[str, float]:
        """The planned cost of the epoch after ``epoch`` finished ones; nothing where no plan is followed."""
        return self.trajectory.at(epoch) if self.method.controller.follows_plan else {}

    def scores_steps(self, epoch: int) -> bool:
        """Whether a decision may still use what the steps of the coming epoch say.

        Where groups keep their proportions, scores choose the units that go: in a plan that only rises there are none.
        """
        if self.widths_follow_from_budget and self.trajectory.only_rises(epoch):
            return False
        return epoch <= self.trajectory.last_decision

    @property
    def widths_follow_from_budget(self) -> bool:
        """Whether groups always keep the method's first proportions."""
        return self.method.controller.keeps_proportions and self.method.width_test is None

    def decision_follows(self, epoch: int) -> bool:
        """Whether structure is decided at the end of the coming epoch or later."""
        return epoch < self.trajectory.last_decision

    def unit_prices(self, widths: Mapping[str, int]) -> dict[str, float]:
        """What one more unit of each group costs at these widths, as a share of what the budget allows of it.

        Nothing is priced where no pressure asks for it. Several caps count with equal weights.
        """
        return {} if self.method.pressure is None else self._unit_prices(widths)

    def _unit_prices(self, widths: Mapping[str, int]) -> dict[str, float]:
        prices = self.prices.of_unit(widths, self.trajectory.caps).values()
        return {group: sum(of_unit[group] for of_unit in prices) / len(prices) for group in self.space.groups}

    def expected_costs(self, widths: Mapping[str, int]) -> dict[str, Range]:
        """The range of the final network's cost in what the budget does not name; these are its widths if it stays."""
        if not self.method.grows:
            shares = self.prices.shares(widths)
            return {name: (share, share) for name, share in shares.items() if name not in self.trajectory.caps}
        costs = in_step_range if self.widths_follow_from_budget else possible_range
        return costs(self.prices, self.trajectory.caps, self.trajectory.multipliers)

    # --- the epoch ---

    def begin(self, progress: Progress, units: LiveUnits, strength: float, device: torch.device) -> None:
        """The epoch after ``progress`` starts with these units."""
        self.strength = strength
        hardness = self.trajectory.hardness(progress.epoch) if self.method.freeze < 1.0 else 0.0
        pace = PAPER_STEPS / max(1, progress.steps_planned)
        beta = self.beta(progress)
        stage = self._stage_time(progress)
        self.keeper.begin(EpochStart(units.active, beta, device, strength, hardness, pace, units.inactive, stage))

    def _stage_time(self, progress: Progress) -> StageTime:
        """Where in its stage the epoch after ``progress`` starts."""
        name = self.stage(progress.epoch)
        epochs = [epoch for epoch in range(self.epochs + self.fine_tune) if self.stage(epoch) == name]
        steps = progress.steps_planned / self.epochs * len(epochs)
        passed = sum(epoch < progress.epoch for epoch in epochs) / max(1, len(epochs))
        return StageTime(name, passed, 1 / steps if steps else 0.0)

    def beta(self, progress: Progress) -> dict[str, FloatArray]:
        """The temperature of every unit."""
        epochs = min(progress.epoch, self.epochs)
        mean_lr_frac = progress.lr_fracs / epochs if epochs else 1.0
        temperature = self.method.temperature
        return {
            name: temperature.beta(drawn, epochs, self.epochs, mean_lr_frac) for name, drawn in progress.drawn.items()
        }

    def draw_sharpness(self, progress: Progress) -> dict[str, FloatArray]:
        """k of every unit's probability sigma(k s) of being drawn."""
        beta = self.beta(progress)
        return beta if self.method.gate.sharpens_draws else {name: np.ones_like(each) for name, each in beta.items()}

    def epoch_share(self, progress: Progress) -> float:
        """How much of the epoch has passed, if it has as many steps as the one before."""
        return min(1.0, progress.steps * self.epochs / max(1, progress.steps_planned))

    @contextmanager
    def undone_if_refused(self) -> Iterator[None]:
        """Random numbers that were drawn inside count only if nothing is raised: a refused call can be made again."""
        state = self.rng.bit_generator.state
        try:
            yield
        except BaseException:
            self.rng.bit_generator.state = state
            raise

    def decide(
        self,
        progress: Progress,
        units: LiveUnits,
        signals: Signals,
        records: Sequence[Mapping[str, Any]],
        device: torch.device,
    ) -> Decision | None:
        """The next network, the same on every rank; None once structure is frozen.

        All units of an absent block are there to choose from. What is decided about them does not matter until the
        block comes in, so the decision leaves them out.
        """
        if progress.epoch > self.trajectory.last_decision or not self.growing(progress.epoch):
            return None
        multipliers = self._tested(progress.epoch, units, signals, device)
        view = View(
            scores=self.keeper.scores(signals),
            beta=self.draw_sharpness(progress),
            live={name: mask | (name in units.inactive) for name, mask in units.masks.items()},
            lived=units.lived,
            limits=self.trajectory.limits(progress.epoch, progress.spent),
            caps=self.trajectory.caps,
            last=progress.epoch == self.trajectory.last_decision,
            prices=self.prices,
            records=records,
            first_widths=self._first_widths,
            multipliers=multipliers,
            freeze=self.trajectory.last_decision / self.epochs,
            reader_patches=signals.reader_patches,
            try_out=partial(self._tried_out, signals, device),
        )
        decision = self.method.controller.decide(view, self.rng)
        push, strength = broadcast_numbers((decision.push, decision.strength), device)
        masks = broadcast_masks(decision.live, device)
        inactive = self.space.inactive_groups(masks)
        live = {name: mask for name, mask in masks.items() if name not in inactive}
        zeroed, scales = (broadcast_masks(decision.zeroed, device), broadcast_arrays(decision.read_scales, device))
        return Decision(live, push, strength, zeroed, multipliers, scales, decision.weights)

    @staticmethod
    def _tried_out(
        signals: Signals, device: torch.device, live: Mapping[str, BoolArray], steps: int, seed: int
    ) -> Trial:
        """A network that was tried out; its loss is the mean over the ranks."""
        trial = signals.try_out(live, steps, seed)
        (loss,) = mean_of_numbers([trial.loss], device)
        return replace(trial, loss=loss)

    def _tested(self, epoch: int, units: LiveUnits, signals: Signals, device: torch.device) -> Mapping[str, float]:
        """The proportions of groups after ``epoch`` finished ones: those of before, or those that a test asks for."""
        test = self.method.width_test
        if test is None or not test.due(epoch, self.epochs):
            return self.multipliers
        widths = {
            name: int(mask.sum())
            for name, mask in units.active.items()
            if name not in units.inactive and name not in self.space.blocks
        }
        rises = signals.loss_rises(
            test.spreads(widths, self._unit_prices(widths_of(units.masks))), test.draws, self.rng
        )
        rises = dict(zip(rises, mean_of_numbers(list(rises.values()), device), strict=True))
        wider = test.wider(widths, rises)
        full, factors = self.space.full, self.space.factors
        return {**self.multipliers, **{name: (width / full[name]) ** factors[name] for name, width in wider.items()}}

    # --- keeping and restoring ---

    def state_dict(self) -> dict[str, Any]:
        return {
            "strength": self.strength,
            "multipliers": dict(self.multipliers),
            "keeper": self.keeper.state_dict(),
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.strength = state["strength"]
        self.multipliers = state.get("multipliers", self.multipliers)  # not in files of before
        self.keeper.load_state_dict(state["keeper"])
        self.rng.bit_generator.state = state["rng"]
