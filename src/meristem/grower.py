"""The grower: the one stateful object a user holds. It joins reading, deciding, acting and recording."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn, optim

from meristem import grower_checks as checks
from meristem import grower_text
from meristem.control.budget import Budget
from meristem.control.decider import Decider, LiveUnits, Progress, Trajectory
from meristem.control.method import Method
from meristem.cost.ledger import Ledger
from meristem.errors import FileError, MeristemError, SurgeryError
from meristem.gating.gating import Gating, Phase, Signals
from meristem.history import History, Record, epoch_record, moves
from meristem.io import checkpoint, state
from meristem.io.export import export, save
from meristem.space.space import Space
from meristem.surgery.live import Live, scale_reads
from meristem.tracing.trace import trace

_KIND = "meristem-checkpoint-2"


class Grower:
    """Grows a model under a budget in the user's own loop; call :meth:`step` once per epoch.

    The model becomes small at once: at the start few units of each group are live. ``epochs`` is how often
    :meth:`step` will be called, but for the epochs of ``fine_tune``, in which the network that was found is trained
    on: its structure stays, the gates are gone. ``budget`` and ``method`` may be given as text: ``"36%"`` (of the
    parameters), ``"params=36%,macs=50%"``; ``"paper"``, ``"default:peak=1"``. ``batch_size`` makes the training cost
    absolute; without it a step counts as one forward and backward pass of the example inputs. ``history`` is a file
    the records are appended to. ``carried`` says where the state is that the model returns and is given back, see
    :func:`meristem.trace`.
    """

    def __init__(  # noqa: PLR0913
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        example_inputs: Any = None,
        *,
        epochs: int,
        budget: Budget | str | None = None,
        fine_tune: int = 0,
        method: Method | str | None = None,
        space: Space | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        history: str | Path | None = None,
        carried: int | str | None = None,
    ) -> None:
        self.method = checks.as_method(method)
        self.budget = checks.as_budget(budget, self.method)
        checks.check_arguments(model, optimizer, self.budget, self.method, space)
        checks.check_numbers(epochs, fine_tune, seed, batch_size)
        self.epochs, self.fine_tune, self.seed = int(epochs), int(fine_tune), int(seed)  # numpy's would not be kept
        self.model, self.optimizer = checks.unwrapped(model), optimizer
        checks.check_training(self.model, optimizer)
        checks.check_free(optimizer)
        if space is None and example_inputs is None:
            raise MeristemError("Grower needs example_inputs (what the model is called with) or a traced space")
        space = trace(self.model, example_inputs, carried=carried) if space is None else space
        self.space = checks.agreed_space(space, carried)
        checks.check_method(self.method, self.space, model)
        step_samples = checks.samples_of_a_step(example_inputs, batch_size)
        self._decider = Decider(self.method, self.space, self.budget, self.epochs, self.fine_tune, self.seed)
        self.history = History(history)
        start, fresh = self._decider.first_units, self.method.fresh
        self.live = Live(self.model, self.space, optimizer, start=start, fresh=fresh, seed=self.seed)
        if self.method.start.native_scale:
            scale_reads(self.live)
        self._progress = self._decider.first_progress
        self.ledger = Ledger(self._decider.prices.dense["macs"] * step_samples)
        self._gating = Gating(
            self.live,
            optimizer,
            self._decider.keeper,
            self._on_optimizer_step,
            placement=self.method.placement,
            opening_epochs=self.method.opening,
            pressure=self.method.pressure,
        )
        self._begin_epoch(strength=0.0)

    # --- the epoch ---

    def step(self, **metrics: float) -> Record:
        """The epoch is over: record it, decide the next network, make it. Returns the record of the epoch."""
        if self.finished:
            made_for = f"epochs={self.epochs}" + (f" and fine_tune={self.fine_tune}" if self.fine_tune else "")
            raise MeristemError(
                f"step() was called more than {self.epoch} times, but this grower was made for {made_for}; "
                f"call it once per epoch"
            )
        self.live.check_untouched()
        numbers = checks.as_numbers(metrics)
        with self._decider.undone_if_refused():  # nothing else is assigned before the decision stands
            self._decider.keeper.finish()
            macs_frac = self._decider.prices.share("macs", self.live.widths)
            ledger = self.ledger.after_training(self._progress.steps, macs_frac, self._decider.stage(self.epoch))
            record = self._record(numbers, ledger)
            progress = self._progress.after_epoch(self.live.active, self._gating.lr_frac, self.epochs)
            records = [*self.records, record]
            decision = self._decider.decide(progress, self._units, self._gating.signals(), records, self._device)
            plan = None
            if decision is not None:
                plan = self.live.plan({name: np.flatnonzero(mask) for name, mask in decision.live.items()})
        self._progress, self.ledger = progress, ledger
        self.live.stay() if plan is None else self.live.apply(plan)
        record.update(moves(plan), frozen=plan is None)
        if self.epoch == self.epochs and self.fine_tune:
            self._gating.fold(self.model)
        self._begin_epoch(decision.strength if decision is not None else 0.0)
        self.history.append(record)
        return record

    def _begin_epoch(self, strength: float, resumed: bool = False) -> None:
        """Tell scores and gates what the coming epoch is; after the last one nothing changes, gates neither."""
        if not self.finished or resumed:
            self._decider.begin(self._progress, self._units, strength, self._device)
            self._gating.begin_epoch(self._block_ages, self._device, self._decider.epoch_share(self._progress))
            self._clock = time.perf_counter()
        self._gating.enter(
            Phase(
                trains=not self.finished,
                grows=self.growing,
                scores=self._decider.scores_steps(self.epoch),
                presses=self._decider.decision_follows(self.epoch),
            )
        )

    def _on_optimizer_step(self, signals: Signals) -> None:
        self._progress = self._progress.after_step()
        self._gating.open_blocks(self._decider.epoch_share(self._progress))
        if self._gating.scoring:
            self._decider.keeper.step(signals, self._gating.lr_frac)

    def _record(self, metrics: Mapping[str, float], ledger: Ledger) -> Record:
        decider, progress = self._decider, self._progress
        return epoch_record(
            decider.prices,
            self._units.active,
            widths=self.live.widths,
            epoch={
                "epoch": self.epoch + 1,
                "progress": min(1.0, (self.epoch + 1) / self.epochs),  # of growing
                "fine_tuning": not self.growing,
                "stage": decider.stage(self.epoch),
                "steps": progress.steps,
                "planned": decider.planned(self.epoch),
                "strength": decider.strength,
                "metrics": dict(metrics),
                "seconds": time.perf_counter() - self._clock,
                **ledger.record,
            },
            temperature=decider.beta(progress),
            scores=decider.keeper.scores(self._gating.signals()),
            device=self._device,
        )

    # --- what comes out ---

    def export(self) -> nn.Module:
        """A plain copy of the network as it is now, at any time: original classes, gates folded in, no hooks.

        The gate of a whole block cannot be folded into a plain one: in the copy it is open, as at the end of a run. A
        block that has just come in, and is still shut, is left out.
        """
        with self._gating.plain_blocks():
            return export(self.live, self._gating.attached_unit_gates, self._gating.shut_blocks)

    def save(self, folder: str | Path) -> None:
        """Write the exported network to ``folder``; :func:`meristem.load` reads it into a full-size model."""
        with self._gating.plain_blocks():
            save(self.live, folder, self._gating.attached_unit_gates, self._gating.shut_blocks)

    def resize_state(self, carried: Any) -> Any:
        """A state from before the last :meth:`step`, as one of the network now; call it after every step, once a state.

        Units that stayed keep their values, fresh and restored ones start at zero; it is detached from the graph.
        """
        return self.live.resize_state(carried)

    # --- how it stands ---

    @property
    def epoch(self) -> int:
        """How many epochs are finished."""
        return self._progress.epoch

    @property
    def growing(self) -> bool:
        """Whether the coming epoch is one of growing, not of fine-tuning."""
        return self._decider.growing(self.epoch)

    @property
    def finished(self) -> bool:
        return self.epoch >= self.epochs + self.fine_tune

    @property
    def widths(self) -> dict[str, int]:
        return self.live.widths

    @property
    def records(self) -> list[Record]:
        return self.history.records

    @property
    def trajectory(self) -> Trajectory:
        """The planned cost of every epoch."""
        return self._decider.trajectory

    @property
    def expected_spend_frac(self) -> float:
        """The share of the dense training cost this run is planned to need, known before it starts.

        With macs or spend in the budget it is an upper bound; otherwise it is that of groups that grow in step. Of
        methods that follow no plan (`paper`, `autogrow`, `iss`) it tells nothing.
        """
        return self.trajectory.expected_spend_frac(self._decider.prices)

    def __repr__(self) -> str:
        return grower_text.summary(self._standing)

    def _repr_html_(self) -> str:
        return grower_text.html(self._standing)

    @property
    def _standing(self) -> grower_text.Standing:
        return grower_text.Standing(
            model=type(self.model).__name__,
            budget=str(self.budget),
            epoch=self.epoch,
            epochs=self.epochs + self.fine_tune,
            shares=self._decider.prices.shares(self.widths),
            training_cost=self.ledger.spend_frac,
            widths={name: (width, self.space.groups[name].units) for name, width in self.widths.items()},
        )

    @property
    def _units(self) -> LiveUnits:
        return LiveUnits(self.live.masks, self.live.lived, self.live.inactive_groups)

    @property
    def _block_ages(self) -> dict[str, float]:
        """The epochs that each live block has been drawn for."""
        live = self.live.masks
        return {group: float(self._progress.drawn[group][0]) for group in self.space.blocks if live[group][0]}

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    # --- keeping and restoring ---

    def state_dict(self) -> dict[str, Any]:
        """Everything that a grower made in the same way needs to go on from here, model and optimizer included.

        Take it between optimizer steps; gradients are not kept. ``torch.save`` writes it, ``torch.load`` reads it.
        """
        return {
            "identity": self._identity(),
            "progress": state.portable(dataclasses.asdict(self._progress)),
            "first lr": self._gating.first_lr,
            "live": state.portable(self.live.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "decider": state.portable(self._decider.state_dict()),
            "ledger": dataclasses.asdict(self.ledger),
            "records": json.dumps(self.records),  # one string: encoding thousands of numbers one by one is slow
        }

    def load_state_dict(self, kept: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned: call it on a grower made in the same way.

        The state of another run is refused and changes nothing.
        """
        try:
            self._load(kept)
        except FileError as error:
            raise FileError(f"this state {error}") from None

    def _load(self, kept: Mapping[str, Any]) -> None:
        if "identity" not in kept:
            raise FileError("is not the state of a grower")
        checks.check_identity(kept["identity"], self._identity())
        try:
            self.live.load_state_dict(state.restored(kept["live"]))
        except SurgeryError as error:
            raise FileError(f"does not fit this model: {error}") from None
        self.optimizer.load_state_dict(kept["optimizer"])
        self._progress = Progress(**state.restored(kept["progress"]))
        self._gating.first_lr = kept["first lr"]
        self.ledger = Ledger(**kept["ledger"])
        decider = state.restored(kept["decider"])
        self._decider.load_state_dict(decider)
        self._begin_epoch(decider["strength"], resumed=True)
        self._decider.load_state_dict(
            decider
        )  # beginning an epoch clears or renews what a state in the middle of one still needs
        self._gating.forget_pulls()
        self.history.restart(json.loads(kept["records"]))

    def checkpoint(self, path: str | Path, **extra: Any) -> None:
        """Write the state to a file, atomically, with the random state of the process and what you add.

        Call it between optimizer steps; gradients are not kept.
        """
        kept = {"grower": self.state_dict(), "random": checkpoint.random_state(), "extra": extra}
        checkpoint.write(path, kept, kind=_KIND)

    def resume(self, path: str | Path) -> dict[str, Any]:
        """Go on from a checkpoint: call it on a grower made in the same way. Returns what was added to it.

        A damaged or foreign file is refused and changes nothing.
        """
        kept = checkpoint.read(path, kind=_KIND)
        try:
            self._load(kept["grower"])
        except FileError as error:
            raise FileError(f"{path} {error}") from None
        checkpoint.set_random_state(kept["random"])
        extra: dict[str, Any] = kept["extra"]
        return extra

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a state to fit."""
        return {
            **checks.identity(self.space, self.model, self.optimizer),
            "budget": str(self.budget),
            "method": checks.without_addresses(repr(self.method)),
            "epochs": f"{self.epochs} + {self.fine_tune} of fine-tuning" if self.fine_tune else self.epochs,
            "seed": self.seed,
        }
