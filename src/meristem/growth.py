"""One run of growing: joins what decides, what acts and what is counted, epoch by epoch. The grower is its face."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from meristem.control.decider import Decider, LiveUnits, Progress
from meristem.cost.ledger import TEACH, Ledger
from meristem.distributed.agreement import mean_of_metrics, same_on_all_ranks, sum_of_numbers, take_from_rank_0
from meristem.distributed.data_parallel import is_wrapper_around
from meristem.distributed.shards import whole
from meristem.errors import FileError, MeristemError, SurgeryError
from meristem.gating.gating import Gating, LiveSignals, Phase
from meristem.gating.held_out import HeldOut, HeldOutLoss
from meristem.gating.interfaces import Signals, WeightsOf
from meristem.gating.teacher import Teacher
from meristem.gating.trials import ShortTraining, Trials
from meristem.gating.unit_gates import Gates
from meristem.history import Record, epoch_record, moves
from meristem.io import state
from meristem.surgery.live import Live, scale_reads
from meristem.surgery.optimizer import Optimizers
from meristem.surgery.spread import Spread


@dataclass(frozen=True)
class Samples:
    """How many samples the example inputs have, and how many one optimizer step sees."""

    example: int
    step: int

    @property
    def examples_per_step(self) -> float:
        return self.step / self.example


@dataclass(frozen=True)
class Helpers:
    """What the user gives to methods that decide by more than the training itself shows."""

    held_out_loss: HeldOutLoss | None = None
    short_training: ShortTraining | None = None


class Growth:
    """The live model of a run, its decider, its gates, how far it is and what it has cost.

    ``seed`` is that of fresh blocks whose start is drawn.
    """

    def __init__(
        self,
        spread: Spread,
        optimizers: Optimizers,
        decider: Decider,
        seed: int,
        samples: Samples,
        helpers: Helpers,
    ) -> None:
        self.spread, self.optimizers, self.decider, method = spread, optimizers, decider, decider.method
        self.model = model = spread.model
        self.teacher = None if method.distillation is None else Teacher(model)  # while the model is full
        self.epochs, self.fine_tune = decider.epochs, decider.fine_tune
        self._check_start()
        self.live = Live(model, decider.space, optimizers, start=decider.first_units, fresh=method.fresh, seed=seed)
        if method.start.native_scale:
            scale_reads(self.live)
        self.progress = self.decider.first_progress
        self._samples = samples
        self.ledger = Ledger(self.decider.prices.dense["macs"] * samples.examples_per_step)
        self.gating = Gating(
            self.live,
            optimizers,
            self.decider.keeper,
            self._on_optimizer_step,
            placement=method.placement,
            opening_epochs=method.opening,
            pressure=method.pressure,
        )
        if helpers.held_out_loss is not None:
            self.gating.held_out = HeldOut(self.live, helpers.held_out_loss)
            if helpers.short_training is not None:
                self.gating.trials = Trials(self.live, helpers.held_out_loss, helpers.short_training)
        self._clock = time.perf_counter()
        with spread.gathered(self.live):
            self._begin_epoch(decider.strength)

    @property
    def growing(self) -> bool:
        """Whether the coming epoch is one of growing, not of fine-tuning."""
        return self.decider.growing(self.progress.epoch)

    @property
    def finished(self) -> bool:
        return self.progress.epoch >= self.epochs + self.fine_tune

    # --- the epoch ---

    def finish_epoch(self, metrics: Mapping[str, float], earlier: Sequence[Record]) -> Record:
        """Record the epoch that is over, decide the next network, make it. Nothing changes if that is refused."""
        self.live.check_untouched()
        with self.spread.gathered(self.live):
            return self._finish_epoch(metrics, earlier)

    def _finish_epoch(self, metrics: Mapping[str, float], earlier: Sequence[Record]) -> Record:
        self._check_ranks()
        with self.decider.undone_if_refused():  # nothing else is assigned before the decision stands
            self.decider.keeper.finish()
            macs_frac = self.decider.prices.share("macs", self.live.widths)
            stage = self.decider.stage(self.progress.epoch)
            ledger = self._with_teaching(self.ledger.after_training(self.progress.steps, macs_frac, stage))
            record = self._record(mean_of_metrics(metrics), ledger)
            progress = self.decider.after_epoch(self.progress, self.live.active, self.gating.lr_frac)
            signals, records = self.gating.signals(), [*earlier, record]
            decision = self.decider.decide(progress, self._units, signals, records, self._device)
            plan = None
            if decision is not None:
                plan = self.live.plan({name: np.flatnonzero(mask) for name, mask in decision.live.items()})
            searched = self._searched(signals, macs_frac)
        self.progress = self.decider.accept(progress, decision)
        self.ledger = ledger.after_evaluating(searched, 1.0) if searched else ledger
        self.live.stay() if plan is None else self.live.apply(plan)
        if decision is not None and decision.weights:
            self.live.take_over(decision.weights)
        if decision is not None and decision.zeroed:
            self.gating.weights(WeightsOf.FILTER).zero_units(decision.zeroed)
        if decision is not None and decision.read_scales:
            self.gating.scale_reads(decision.read_scales)
        take_from_rank_0(self.live.averages)  # buffers are each rank's own
        record.update(moves(plan), frozen=plan is None)
        if progress.epoch == self.epochs and self.fine_tune:
            self.gating.fold(self.model)
        self._begin_epoch(decision.strength if decision is not None else 0.0)
        return record

    def _check_start(self) -> None:
        """Refuse to start from other weights on each rank: units that come in later would have those."""
        if not same_on_all_ranks(self.model.parameters()):
            raise MeristemError(
                "the ranks of this distributed run start from different weights: wrap the model before you make the "
                "grower, model = DistributedDataParallel(model), or build it from the same seed on every rank"
            )

    def taught(self, loss: Tensor, outputs: Tensor, *inputs: Any) -> Tensor:
        """The loss with what a teacher adds to it in this epoch; the loss itself where none teaches."""
        if not self._teaches or self.teacher is None or self.decider.method.distillation is None:
            return loss
        return self.decider.method.distillation.loss(loss, outputs, self.teacher.answer(*inputs))

    @property
    def _teaches(self) -> bool:
        """Whether this is an epoch in which a teacher takes part; one that nothing has trained teaches nothing."""
        lesson = self.decider.method.distillation
        if lesson is None or self.finished or not self.progress.epoch:
            return False
        return self.decider.stage(self.progress.epoch) == lesson.stage

    def _with_teaching(self, ledger: Ledger) -> Ledger:
        """The ledger after what the teacher has answered; refuses an epoch in which it was never asked."""
        if self.teacher is None or not self._teaches:
            return ledger
        if self.progress.steps and not self.teacher.samples:
            raise MeristemError(
                "in this stage the network learns from a teacher, too, and that was never asked: put "
                "loss = grower.taught(loss, outputs, inputs) before loss.backward()"
            )
        (answered,) = sum_of_numbers([self.teacher.samples], self._device)
        return ledger.after_evaluating(answered / self._samples.step, 1.0, TEACH)

    def _searched(self, signals: LiveSignals, macs_frac: float) -> float:
        """What a decision has looked at, by all ranks: held-out data, networks that were tried out; in whole passes."""
        tried = [passes * self.decider.prices.share("macs", widths) for passes, widths in signals.tried]
        return sum(sum_of_numbers([signals.evaluated_samples * macs_frac, *tried], self._device)) / self._samples.step

    def _check_ranks(self) -> None:
        """Refuse to go on with ranks that train different networks."""
        if not same_on_all_ranks([each for each in self.model.parameters() if each.requires_grad]):
            raise MeristemError(
                "the ranks of this distributed run have different parameters: their gradients are not averaged. Wrap "
                "the model and give the grower the wrapper: model = DistributedDataParallel(model), Grower(model, ...)"
            )

    def _begin_epoch(self, strength: float, resumed: bool = False) -> None:
        """Tell scores and gates what the coming epoch is; after the last one nothing changes, gates neither."""
        if not self.finished or resumed:
            self.decider.begin(self.progress, self._units, strength, self._device)
            self.gating.begin_epoch(self._block_ages, self._device, self.decider.epoch_share(self.progress))
            if self.teacher is not None and not resumed:
                self.teacher.samples = 0
                if self._teaches and not self.teacher.ready:
                    self.teacher.learn(self.model)
            self._clock = time.perf_counter()
        epoch = self.progress.epoch
        self.gating.enter(
            Phase(
                trains=not self.finished,
                grows=self.growing,
                scores=self.decider.scores_steps(epoch),
                presses=self.decider.decision_follows(epoch),
                unit_prices=self.decider.unit_prices(self.live.widths),
            )
        )

    def _on_optimizer_step(self, signals: Signals) -> None:
        self.progress = self.progress.after_step()
        self.gating.open_blocks(self.decider.epoch_share(self.progress))
        if self.gating.scoring:
            self.decider.keeper.step(signals, self.gating.lr_frac)

    def _record(self, metrics: Mapping[str, float], ledger: Ledger) -> Record:
        decider, progress = self.decider, self.progress
        return epoch_record(
            decider.prices,
            self._units.active,
            widths=self.live.widths,
            epoch={
                "epoch": progress.epoch + 1,
                "progress": min(1.0, (progress.epoch + 1) / self.epochs),  # of growing
                "fine_tuning": not self.growing,
                "stage": decider.stage(progress.epoch),
                "steps": progress.steps,
                "planned": decider.planned(progress.epoch),
                "strength": decider.strength,
                "metrics": dict(metrics),
                "seconds": time.perf_counter() - self._clock,
                **ledger.record,
            },
            temperature=decider.beta(progress),
            scores=decider.keeper.scores(self.gating.signals()),
            device=self._device,
        )

    @property
    def _units(self) -> LiveUnits:
        return LiveUnits(self.live.masks, self.live.lived, self.live.inactive_groups)

    @property
    def _block_ages(self) -> dict[str, float]:
        """The epochs that each live block has been drawn for."""
        live = self.live.masks
        return {group: float(self.progress.drawn[group][0]) for group in self.live.space.blocks if live[group][0]}

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def follow(self, given: nn.Module, copy_in_it: Callable[[], nn.Module]) -> None:
        """Let a wrapper around the model follow it, or an averaged copy of it."""
        with self.spread.gathered(self.live):
            self.spread.add(given)
            if not is_wrapper_around(given, self.model):
                self.live.follow(copy_in_it())

    @contextmanager
    def exportable(self) -> Iterator[tuple[Gates | None, frozenset[str]]]:
        """The whole model with plain blocks inside, and what an export adds: gates to fold in, blocks to leave out."""
        with self.gating.plain_blocks(), self.spread.gathered(self.live):
            yield self.gating.attached_unit_gates, self.gating.shut_blocks

    # --- keeping and restoring ---

    def state_dict(self) -> dict[str, Any]:
        """Everything that a run made in the same way needs to go on from here, model and optimizer included."""
        return {
            "progress": state.portable(dataclasses.asdict(self.progress)),
            "first lr": self.gating.first_lr,
            "live": state.portable(self.live.state_dict()),
            "optimizer": self.optimizers.state_dict(),
            "decider": state.portable(self.decider.state_dict()),
            "ledger": dataclasses.asdict(self.ledger),
            **({} if self.teacher is None else {"teacher": self.teacher.state_dict()}),
        }

    def load_state_dict(self, kept: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned; the state of another model is refused and changes nothing."""
        with self.spread.gathered(self.live):
            self._load(tree_map_only(Tensor, whole, dict(kept)))

    def _load(self, kept: Mapping[str, Any]) -> None:
        try:
            self.live.load_state_dict(state.restored(kept["live"]))
        except SurgeryError as error:
            raise FileError(f"does not fit this model: {error}") from None
        self.optimizers.load_state_dict(kept["optimizer"])
        self.progress = Progress(**state.restored(kept["progress"]))
        self.gating.first_lr = kept["first lr"]
        self.ledger = Ledger(**kept["ledger"])
        if self.teacher is not None:
            self.teacher.load_state_dict(kept["teacher"])
        decider = state.restored(kept["decider"])
        self.decider.load_state_dict(decider)
        self._begin_epoch(decider["strength"], resumed=True)
        self.decider.load_state_dict(decider)  # beginning an epoch clears what a state in the middle of one needs
        self.gating.forget_pulls()
