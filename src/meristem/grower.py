"""The grower: the one stateful object a user holds. It joins reading, deciding, acting and recording."""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn, optim

from meristem import grower_checks as arguments
from meristem.control.budget import Budget
from meristem.control.controller import Decision, View
from meristem.control.first_network import first_units
from meristem.control.method import PAPER_STEPS, GatePlacement, Method
from meristem.control.scores import Epoch, first_scores
from meristem.control.trajectory import plan_trajectory
from meristem.cost.count import cost_at
from meristem.cost.ledger import Ledger
from meristem.cost.memory import peak_bytes
from meristem.cost.price import Prices
from meristem.distributed import agreed, agreed_numbers
from meristem.errors import FileError, MeristemError, SurgeryError
from meristem.gating.block_gates import BlockGates
from meristem.gating.lasso import UnitLasso
from meristem.gating.opening import Opening
from meristem.gating.placement import making, reading
from meristem.gating.pulls import Pulls
from meristem.gating.unit_gates import Gates
from meristem.history import History, Record, counts, live_blocks, statistics
from meristem.io import checkpoint
from meristem.io.export import export, save
from meristem.space.arrays import FloatArray
from meristem.space.plan import Plan
from meristem.space.space import Space
from meristem.surgery.live import Live, scale_reads
from meristem.surgery.optimizer import lr_frac
from meristem.tracing.trace import trace

_KIND = "meristem-checkpoint-1"
_PLACEMENTS = {GatePlacement.READING: reading, GatePlacement.MAKING: making}


class Grower:
    """Grows a model under a budget in the user's own loop; call :meth:`step` once an epoch.

    The model becomes small at once: at the start few units of each group are live. ``epochs`` is how often
    :meth:`step` will be called, but for the epochs of ``fine_tune``, in which the network that was found is trained
    on: its structure stays, the gates are gone. ``batch_size`` makes the spend absolute; without it a step counts as
    one forward and backward pass of the example inputs. ``history`` is a file the records are appended to. ``carried``
    says where the state is that the model returns and is given back, see :func:`meristem.trace`.
    """

    def __init__(  # noqa: PLR0913
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        example_inputs: Any = None,
        *,
        budget: Budget,
        epochs: int,
        fine_tune: int = 0,
        method: Method | None = None,
        space: Space | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        history: str | Path | None = None,
        carried: int | str | None = None,
    ) -> None:
        self.method = Method() if method is None else method
        arguments.check_arguments(model, optimizer, budget, self.method, space)
        arguments.check_numbers(epochs, fine_tune, seed, batch_size)
        epochs, fine_tune, seed = int(epochs), int(fine_tune), int(seed)  # numpy's would not go into a checkpoint
        self.model = arguments.plain(model)
        arguments.check_training(self.model, optimizer)
        arguments.check_free(optimizer, type(self))
        self.epochs, self.fine_tune, self.budget, self.seed = epochs, fine_tune, budget, seed
        if space is None and example_inputs is None:
            raise MeristemError("Grower needs example_inputs (what the model is called with) or a traced space")
        space = trace(self.model, example_inputs, carried=carried) if space is None else space
        self.space = arguments.agreed_space(space, carried)
        arguments.check_method(self.method, self.space, model)
        step_samples = arguments.samples_of_a_step(example_inputs, batch_size)
        self._prices = Prices(self.space)
        self.trajectory = plan_trajectory(
            budget, self.method.schedule, self._prices, self.method.freeze, epochs, fine_tune
        )
        self._rng = np.random.default_rng(seed)
        self.history = History(history)
        start = first_units(self.method, self._prices, self.trajectory, budget)
        self.live = Live(self.model, self.space, optimizer, start=start, fresh=self.method.fresh, seed=seed)
        if self.method.native_scale:
            scale_reads(self.live)
        self.optimizer = optimizer
        self.epoch = 0
        self._drawn = {name: np.zeros(group.units) for name, group in self.space.groups.items()}
        self._lr_start, self._lr_fracs = float(optimizer.param_groups[0]["lr"]), 0.0
        self._steps, self._steps_planned = 0, PAPER_STEPS
        self.ledger = Ledger(self._prices.dense["macs"] * step_samples)
        slots = _PLACEMENTS[self.method.side](self.space)
        scores = first_scores(self.live.masks, self.space)
        self._learner = self.method.learning.learner(scores, self._rng, tuple(self.space.blocks))
        self._opening = Opening(self.method.opening, {group for group in self.space.blocks if len(start[group])})
        self._passing = BlockGates(self.live, self._learner.values, self._opening)
        self._pulls = Pulls(self.live, slots, self._passing)
        lasso = self.method.lasso
        self._lasso = UnitLasso(self.live, lasso.strength, lasso.threshold) if lasso is not None else None
        self._begin(strength=0.0)
        self._gates = Gates(self.live, self._learner.values, slots) if self._learner.scales else None
        self._hooks: list[Any] = []
        self._listen()

    # --- the epoch ---

    def step(self, **metrics: float) -> Record:
        """The epoch is over: record it, decide the next network, make it. Returns the record of the epoch."""
        if self.finished:
            made_for = f"epochs={self.epochs}" + (f" and fine_tune={self.fine_tune}" if self.fine_tune else "")
            raise MeristemError(
                f"step() was called more than {self.epoch} times, but this grower was made for {made_for}; "
                f"call it once an epoch"
            )
        self.live.check_untouched()
        metrics = arguments.numbers(metrics)
        with self._unless_refused():
            self._learner.finish()
            record = self._record(metrics)
            if self.growing:
                self._drawn = {name: self._drawn[name] + mask for name, mask in self.live.active.items()}
                self._lr_fracs += lr_frac(self.optimizer, self._lr_start)
            self._steps_planned = self._steps * self.epochs
            self._steps, self.epoch = 0, self.epoch + 1
            decision = self._decide(record)
            plan = None if decision is None else self._plan(decision)
        self.live.stay() if plan is None else self.live.apply(plan)
        record.update(counts(plan), frozen=plan is None)
        if self.epoch == self.epochs and self.fine_tune and self._gates is not None:
            self._gates.detach()
            self._gates.fold(self.model)
        if not self.finished:  # after the last epoch nothing changes any more, the gates' values neither
            self._begin(decision.strength if decision is not None else 0.0)
        self._listen()
        self.history.append(record)
        return record

    @contextmanager
    def _unless_refused(self) -> Iterator[None]:
        """What is counted inside counts only if nothing is raised: a call that is refused can be made again."""
        counted = ("ledger", "_drawn", "_lr_fracs", "_steps", "_steps_planned", "epoch")
        before = {name: copy.copy(getattr(self, name)) for name in counted}
        rng = self._rng.bit_generator.state
        try:
            yield
        except BaseException:
            self.__dict__.update(before)
            self._rng.bit_generator.state = rng
            raise

    def resize_state(self, state: Any) -> Any:
        """A state from before the last :meth:`step`, as one of the network now; call it after every step, once a state.

        Units that stayed keep their values, fresh and restored ones start at zero; it is detached from the graph.
        """
        return self.live.resize_state(state)

    def export(self) -> nn.Module:
        """A plain copy of the network as it is now, at any time: original classes, gates folded in, no hooks.

        The gate of a whole block cannot be folded into a plain one: in the copy it is open, as at the end of a run. A
        block that has just come in, and is still shut, is left out.
        """
        with self._passing.paused():
            return export(self.live, self._attached_gates, self._opening.shut)

    def save(self, folder: str | Path) -> None:
        """Write the exported network to ``folder``; :func:`meristem.load` reads it into a full-size model."""
        with self._passing.paused():
            save(self.live, folder, self._attached_gates, self._opening.shut)

    @property
    def growing(self) -> bool:
        """Whether the coming epoch is one of growing, not of fine-tuning."""
        return self.epoch < self.epochs

    @property
    def finished(self) -> bool:
        return self.epoch >= self.epochs + self.fine_tune

    @property
    def _attached_gates(self) -> Gates | None:
        return self._gates if self._gates is not None and self._gates.attached else None

    @property
    def widths(self) -> dict[str, int]:
        return self.live.widths

    @property
    def records(self) -> list[Record]:
        return self.history.records

    @property
    def expected_spend_frac(self) -> float:
        """The share of the dense training cost this run is planned to spend, known before it starts.

        With macs or spend in the budget it is an upper bound; otherwise it is that of groups that grow in step. Of
        methods that follow no plan (`paper`, `autogrow`, `iss`) it tells nothing.
        """
        return self.trajectory.expected_spend_frac(self._prices)

    # --- deciding ---

    def _decide(self, record: Record) -> Decision | None:
        if self.epoch > self.trajectory.last_decision or not self.growing:
            return None
        inactive = self.live.inactive_groups  # all that lies in an absent block is there to choose from
        view = View(
            scores=self._scores(),
            beta=self._beta(),
            live={name: mask | (name in inactive) for name, mask in self.live.masks.items()},
            lived=self.live.lived,
            limits=self.trajectory.at(self.epoch),
            caps=self.trajectory.caps,
            last=self.epoch == self.trajectory.last_decision,
            prices=self._prices,
            records=[*self.records, record],
        )
        decision = self.method.controller.decide(view, self._rng)
        push, strength = agreed_numbers((decision.push, decision.strength), self._device)
        self._learner.push(push)
        return dataclasses.replace(decision, push=push, strength=strength)

    def _scores(self) -> dict[str, FloatArray]:
        return self._learner.scores if self._lasso is None else self._lasso.norms()

    def _plan(self, decision: Decision) -> Plan:
        """What lies in a block that is absent stays as it is: the block overrules what was decided of it."""
        masks = agreed(decision.live, self._device)
        inactive = self.space.inactive_groups(masks)
        return self.live.plan({name: np.flatnonzero(mask) for name, mask in masks.items() if name not in inactive})

    def _beta(self) -> dict[str, FloatArray]:
        grown, temperature = min(self.epoch, self.epochs), self.method.temperature
        mean_lr_frac = self._lr_fracs / grown if grown else 1.0
        return {name: temperature.beta(drawn, grown, self.epochs, mean_lr_frac) for name, drawn in self._drawn.items()}

    def _begin(self, strength: float) -> None:
        self._strength = strength
        hardness = self.trajectory.hardness(self.epoch) if self.method.freeze < 1.0 else 0.0
        pace = PAPER_STEPS / max(1, self._steps_planned)
        live, inactive = self.live.active, self.live.inactive_groups
        self._learner.begin(Epoch(live, self._beta(), self._device, strength, hardness, pace, inactive))
        ages = {group: float(self._drawn[group][0]) for group in self.space.blocks if live[group][0]}
        self._opening.begin(ages, self._device, self._epoch_share)
        self._clock = time.perf_counter()

    # --- the steps of the user's optimizer ---

    def _listen(self) -> None:
        """Hooks on the optimizer as long as there are epochs to come; gates as long as the network grows."""
        if self.finished:
            while self._hooks:
                self._hooks.pop().remove()
        elif not self._hooks:
            self._hooks = [
                self.optimizer.register_step_pre_hook(self._before_optimizer_step),
                self.optimizer.register_step_post_hook(self._after_optimizer_step),
            ]
        hears = self._learner.listens and self.epoch <= self.trajectory.last_decision
        passing = self.growing and (hears or self._learner.scales or not self._opening.done)
        (self._passing.attach if passing else self._passing.detach)()
        if self._gates is not None and (self.growing or self.fine_tune):
            (self._gates.attach if self.growing else self._gates.detach)()
        if self._lasso is not None:
            (self._lasso.attach if self.epoch < self.trajectory.last_decision else self._lasso.detach)()

    def _before_optimizer_step(self, optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not arguments.has_closure(args, kwargs):
            self._learn()

    def _after_optimizer_step(self, optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
        if arguments.has_closure(args, kwargs):  # gradients were made inside the step
            self._learn()

    @torch.no_grad()
    def _learn(self) -> None:
        # A gradient scaler leaves these on fused optimizers, which then unscale and skip by themselves.
        found_inf, scale = (getattr(self.optimizer, name, None) for name in ("found_inf", "grad_scale"))
        if found_inf is not None and bool(found_inf):
            return
        self._steps += 1
        self._opening.step(self._epoch_share)
        if self._learner.listens and self.epoch <= self.trajectory.last_decision:
            pull = self._pulls()
            pull = pull if scale is None else pull / scale.to(pull.device)
            self._learner.step(pull, lr_frac(self.optimizer, self._lr_start))

    @property
    def _epoch_share(self) -> float:
        """How much of the epoch has passed, if it has as many steps as the one before."""
        return min(1.0, self._steps * self.epochs / max(1, self._steps_planned))

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    # --- recording ---

    def _record(self, metrics: Mapping[str, float]) -> Record:
        widths, shares = self.live.widths, self._prices.shares(self.live.widths)
        self.ledger.train(self._steps, shares["macs"])
        masks = self.live.active
        return {
            "epoch": self.epoch + 1,
            "progress": min(1.0, (self.epoch + 1) / self.epochs),  # of growing
            "fine_tuning": not self.growing,
            "widths": widths,
            **dataclasses.asdict(cost_at(self.space, widths)),
            **{f"{name}_frac": share for name, share in shares.items()},
            "planned": dict(self.trajectory.at(self.epoch)) if self.method.controller.follows_plan else {},
            "steps": self._steps,
            **self.ledger.record,
            "seconds": time.perf_counter() - self._clock,
            "peak_bytes": peak_bytes(self._device),
            "metrics": dict(metrics),
            "strength": self._strength,
            "blocks": live_blocks(self.space, masks),
            "temperature": {name: found["mean"] for name, found in statistics(self._beta(), masks).items()},
            "gates": statistics(self._scores(), masks),
        }

    # --- checkpoints ---

    def checkpoint(self, path: str | Path, **extra: Any) -> None:
        """Save everything, atomically: model, optimizer, gates, store, ledger, random state, and what you add.

        Call it between optimizer steps; gradients are not kept.
        """
        state = {
            "identity": self._identity(),
            "epoch": self.epoch,
            "steps": [self._steps, self._steps_planned],
            "lr": [self._lr_start, self._lr_fracs],
            "strength": self._strength,
            "drawn": self._drawn,
            "live": self.live.state(),
            "optimizer": self.optimizer.state_dict(),
            "learner": self._learner.state(),
            "ledger": dataclasses.asdict(self.ledger),
            "records": json.dumps(self.records),  # one string: encoding thousands of numbers one by one is slow
            "rng": self._rng.bit_generator.state,
            "random": checkpoint.random_state(),
            "extra": extra,
        }
        checkpoint.write(path, state, kind=_KIND)

    def resume(self, path: str | Path) -> dict[str, Any]:
        """Go on from a checkpoint: call it on a grower made in the same way. Returns what was added to it.

        A damaged or foreign file is refused and changes nothing.
        """
        state = checkpoint.read(path, kind=_KIND)
        arguments.check_identity(path, state["identity"], self._identity())
        try:
            self.live.load_state(state["live"])
        except SurgeryError as error:
            raise FileError(f"{path} does not fit this model: {error}") from None
        self.optimizer.load_state_dict(state["optimizer"])
        self._learner.load(state["learner"])
        self._drawn = dict(state["drawn"])
        self.epoch, (self._lr_start, self._lr_fracs) = state["epoch"], state["lr"]
        self._steps, self._steps_planned = state["steps"]
        self.ledger = Ledger(**state["ledger"])
        self._rng.bit_generator.state = state["rng"]
        self._begin(state["strength"])
        # Beginning an epoch clears or renews what a checkpoint in the middle of one still needs.
        self._learner.load(state["learner"])
        self._rng.bit_generator.state = state["rng"]
        self._listen()
        self._passing.taken()  # what came in before is not of this run
        self.history.restart(json.loads(state["records"]))
        checkpoint.set_random_state(state["random"])
        extra: dict[str, Any] = state["extra"]
        return extra

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to fit."""
        return {
            **arguments.identity(self.space, self.model, self.optimizer),
            "budget": str(self.budget),
            "method": arguments.same_text(f"{self.method!r}{self.method.lasso or ''}"),
            "epochs": f"{self.epochs} + {self.fine_tune} of fine-tuning" if self.fine_tune else self.epochs,
            "seed": self.seed,
        }
