"""One owner for everything that acts on a live model while it grows.

Gates of units and of blocks in the forward pass, the pulls that are read from gradients, the opening of fresh blocks,
the pressure on weights, and the hooks on the user's optimizer: each has its own time to be attached. `Gating.enter`
says which phase begins; nobody else attaches or detaches anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.utils.hooks import RemovableHandle

from meristem.gating.block_gates import BlockGates
from meristem.gating.held_out import HeldOut
from meristem.gating.interfaces import GateSource, Pressure, ReaderPatches, Signals, Trial, WeightsOf
from meristem.gating.kinds import GatePlacement
from meristem.gating.opening import Opening
from meristem.gating.placement import gate_slots
from meristem.gating.pulls import Pulls
from meristem.gating.reader_patches import patches_of_all_ranks
from meristem.gating.trials import Trials
from meristem.gating.unit_gates import Gates
from meristem.gating.unit_weights import UnitWeights
from meristem.space.arrays import BoolArray, FloatArray
from meristem.surgery.live import Live
from meristem.surgery.optimizer import Optimizers


@dataclass(frozen=True)
class Phase:
    """What the coming epoch is for."""

    trains: bool  # there is a coming epoch
    grows: bool  # it is one of growing, not of fine-tuning
    scores: bool  # a decision may still use what its steps say
    presses: bool  # a decision is still to come at the end of a later epoch
    unit_prices: Mapping[str, float] = field(default_factory=dict)  # of one more unit of each group, for a pressure


class LiveSignals:
    """What can be asked about the live units at one moment, see `gating/interfaces.py`."""

    def __init__(self, gating: Gating, grad_scale: Tensor | None = None) -> None:
        self._gating, self._grad_scale = gating, grad_scale
        self.evaluated_samples = 0  # on which the model was run to answer
        self._tried_before = len(gating.trials.passes) if gating.trials is not None else 0

    def pull(self) -> Tensor:
        pull = self._gating.pulls()
        return pull if self._grad_scale is None else pull / self._grad_scale.to(pull.device)

    def norms(self, p: float, of: WeightsOf = WeightsOf.UNIT) -> dict[str, FloatArray]:
        return self._gating.weights(of).norms(p)

    def loss_rises(self, spreads: Mapping[str, float], draws: int, rng: np.random.Generator) -> dict[str, float]:
        with self._held_out() as held_out:
            return held_out.rises(spreads, draws, rng)

    def reader_patches(self, count: int, rng: np.random.Generator) -> dict[str, list[ReaderPatches]]:
        with self._held_out() as held_out:
            return patches_of_all_ranks(held_out.reader_patches(count, rng))

    def try_out(self, live: Mapping[str, BoolArray], steps: int, seed: int) -> Trial:
        assert self._gating.trials is not None, "a grower refuses a method that tries out without a short training"
        return self._gating.trials(live, steps, seed)

    @property
    def tried(self) -> list[tuple[float, dict[str, int]]]:
        """The networks that were tried out to answer: forward passes of a sample, and widths."""
        return self._gating.trials.passes[self._tried_before :] if self._gating.trials is not None else []

    @contextmanager
    def _held_out(self) -> Iterator[HeldOut]:
        """The held-out data; the samples that are looked at inside are counted."""
        held_out = self._gating.held_out
        assert held_out is not None, "a grower refuses a method that asks for held-out data without them"
        before = held_out.samples
        yield held_out
        self.evaluated_samples += held_out.samples - before


class Gating:
    """Gates, pulls, opening, pressure and optimizer hooks of one live model.

    ``on_step`` is called with the signals once per optimizer step that is really taken, when gradients are final. A
    block that comes in takes ``opening_epochs`` to open.
    ``held_out`` and ``trials`` are set where there are such data.
    """

    def __init__(
        self,
        live: Live,
        optimizers: Optimizers,
        source: GateSource,
        on_step: Callable[[Signals], None],
        *,
        placement: GatePlacement = GatePlacement.READ,
        opening_epochs: float = 0.0,
        pressure: Pressure | None = None,
    ) -> None:
        self._live, self._optimizers, self._source, self._on_step = live, optimizers, source, on_step
        slots = gate_slots(live.space, placement)
        open_at_start = {group for group in live.space.blocks if live.masks[group][0]}
        self._opening = Opening(opening_epochs, open_at_start)
        self.first_lr = optimizers.lr
        self._pressure, self._pressing, self._scoring = pressure, False, False
        self._weights: dict[WeightsOf, UnitWeights] = {}
        self._unit_prices: Mapping[str, float] = {}
        self._block_gates = BlockGates(live, source.gates, self._opening)
        self._unit_gates = Gates(live, source.gates, slots, source.resting_gates) if source.scales_gates else None
        self.pulls = Pulls(live, slots, self._block_gates)
        self.held_out: HeldOut | None = None
        self.trials: Trials | None = None
        self._optimizer_hooks: list[RemovableHandle] = []
        self._stepped: set[int] = set()  # the optimizers that have taken the present step already
        self._awaited: optim.Optimizer | None = None  # the one whose closure has not made gradients yet

    def enter(self, phase: Phase) -> None:
        """Attach what the phase needs and detach the rest; also after every change of the network."""
        self._hook_optimizers(phase.trains)
        self._scoring = phase.scores and self._source.reads_steps
        self._pressing = phase.presses and self._pressure is not None
        self._unit_prices = phase.unit_prices
        if phase.grows and (self._scoring or self._source.scales_gates or not self._opening.done):
            self._block_gates.attach()
        else:
            self._block_gates.detach()
        if self._unit_gates is None:
            return
        if phase.grows:
            self._unit_gates.attach()
        elif phase.trains:
            self._unit_gates.detach()

    def fold(self, model: nn.Module) -> None:
        """Multiply the gates of units into the model's weights, once and for all."""
        if self._unit_gates is not None:
            self._unit_gates.detach()
            self._unit_gates.fold(model)

    def scale_reads(self, factors: Mapping[str, FloatArray]) -> None:
        """Multiply the weights that read live units by these factors, one for every unit of a group, live or not."""
        masks = self._live.masks
        scales = {name: torch.from_numpy(values[masks[name]]).float() for name, values in factors.items()}
        gates = Gates(self._live, scales.get)
        gates.detach()
        gates.fold(self._live.model)

    def signals(self) -> LiveSignals:
        """What can be asked between two steps."""
        return LiveSignals(self)

    def weights(self, of: WeightsOf = WeightsOf.UNIT) -> UnitWeights:
        """The weights of every unit, or those of them that are named."""
        if of not in self._weights:
            self._weights[of] = UnitWeights(self._live, of)
        return self._weights[of]

    @property
    def scoring(self) -> bool:
        """Whether the steps of this epoch are scored."""
        return self._scoring

    # --- blocks that open ---

    def begin_epoch(self, block_ages: Mapping[str, float], device: torch.device, share: float) -> None:
        """An epoch starts, or is taken up when ``share`` of it has passed, with live blocks of these ages in epochs."""
        self._opening.begin(block_ages, device, share)

    def open_blocks(self, share: float) -> None:
        """So much of the epoch has passed."""
        self._opening.step(share)

    def forget_pulls(self) -> None:
        """Drop what was read of blocks before: it belongs to another run."""
        self._block_gates.take_pulls()

    # --- for an export ---

    @contextmanager
    def plain_blocks(self) -> Iterator[None]:
        """No hooks on blocks inside."""
        with self._block_gates.paused():
            yield

    @property
    def attached_unit_gates(self) -> Gates | None:
        """The gates that an export has to fold in."""
        return self._unit_gates if self._unit_gates is not None and self._unit_gates.attached else None

    @property
    def shut_blocks(self) -> frozenset[str]:
        """The live blocks that do not take part yet."""
        return self._opening.shut

    # --- the user's optimizer ---

    @property
    def lr_frac(self) -> float:
        """The learning rate over that of its start."""
        return self._optimizers.lr_frac(self.first_lr)

    def _hook_optimizers(self, trains: bool) -> None:
        if not trains:
            while self._optimizer_hooks:
                self._optimizer_hooks.pop().remove()
        elif not self._optimizer_hooks:
            for optimizer in self._optimizers.all:
                self._optimizer_hooks.append(optimizer.register_step_pre_hook(self._before_step))
                self._optimizer_hooks.append(optimizer.register_step_post_hook(self._after_step))

    def _before_step(self, optimizer: optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if not _has_closure(args, kwargs):
            self._before_update(optimizer)
            return None
        self._awaited = optimizer

        def heard(value: Any) -> Any:  # gradients will be made inside the step
            return self._heard(value) if callable(value) else value

        return (args[0], *map(heard, args[1:])), {name: heard(value) for name, value in kwargs.items()}

    def _heard(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure after whose first call gradients are final, and no weight has changed."""

        def call() -> Any:
            loss = closure()
            awaited, self._awaited = self._awaited, None
            if awaited is not None:
                self._before_update(awaited)
            return loss

        return call

    def _before_update(self, optimizer: optim.Optimizer) -> None:
        if self._first_of_step(optimizer):
            self._listen(optimizer)
            self._press(getattr(optimizer, "grad_scale", None))  # of a gradient scaler, on fused optimizers

    def _after_step(self, optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._pressing and self._pressure is not None:
            self._pressure.after_step(self.weights(self._pressure.acts_on))

    def _first_of_step(self, optimizer: optim.Optimizer) -> bool:
        """Whether a training step begins: of several optimizers, no other has taken it yet.

        Gradients are final when the first of them steps, and no weight has changed. One that steps a second time before
        the others begins another step: a gradient scaler leaves out those whose gradients have overflown.
        """
        if id(optimizer) in self._stepped:
            self._stepped.clear()
        first = not self._stepped
        self._stepped.add(id(optimizer))
        if len(self._stepped) == len(self._optimizers.all):
            self._stepped.clear()
        return first

    @torch.no_grad()
    def _listen(self, optimizer: optim.Optimizer) -> None:
        # A gradient scaler leaves these on fused optimizers, which then unscale and skip by themselves.
        found_inf, grad_scale = (getattr(optimizer, name, None) for name in ("found_inf", "grad_scale"))
        if found_inf is None or not bool(found_inf):
            self._on_step(LiveSignals(self, grad_scale))

    def _press(self, grad_scale: Tensor | None = None) -> None:
        if self._pressing and self._pressure is not None:
            with torch.no_grad():
                self._pressure.before_step(self.weights(self._pressure.acts_on), self._unit_prices, grad_scale)


def _has_closure(args: Any, kwargs: Any) -> bool:
    """Whether an optimizer's step was called with a function that makes the gradients."""
    return any(callable(value) for value in (*args[1:], *kwargs.values()))
