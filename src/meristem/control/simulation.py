"""A run without data: what a method does to the widths when the task says nothing. Seconds for a run of days.

With a norm behind a gated filter the task's gradient on a score vanishes, so that the penalty, the draws and the
budget alone decide the course of a method that trains gates. Of other methods the simulation shows the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.control.budget import Budget
from meristem.control.controller import widths_of
from meristem.control.decider import Decider, LiveUnits
from meristem.control.method import Method
from meristem.errors import MeristemError
from meristem.gating.interfaces import ReaderPatches, Trial, WeightsOf
from meristem.space.arrays import BoolArray, FloatArray
from meristem.space.space import Space


@dataclass(frozen=True)
class SimulatedEpoch:
    """The network of one epoch: its units, and its cost as shares of the dense one, by metric."""

    masks: dict[str, BoolArray]
    shares: dict[str, float]

    @property
    def widths(self) -> dict[str, int]:
        return widths_of(self.masks)


_NEEDS_TRAINING = "a method that scores units by what was trained cannot be simulated; train it instead"


class _Silence:
    """Signals of a task that says nothing."""

    def pull(self) -> Tensor:
        raise AssertionError("a simulation takes no steps")

    def norms(self, p: float, of: WeightsOf = WeightsOf.UNIT) -> dict[str, FloatArray]:
        raise MeristemError(_NEEDS_TRAINING)

    def loss_rises(self, spreads: Mapping[str, float], draws: int, rng: np.random.Generator) -> dict[str, float]:
        return dict.fromkeys(spreads, 1.0)  # no group is minded more than another

    def reader_patches(self, count: int, rng: np.random.Generator) -> dict[str, list[ReaderPatches]]:
        raise MeristemError(_NEEDS_TRAINING)

    def try_out(self, live: Mapping[str, BoolArray], steps: int, seed: int) -> Trial:
        raise MeristemError(_NEEDS_TRAINING)


def simulate(
    method: Method,
    space: Space,
    budget: Budget,
    *,
    epochs: int,
    steps: int,
    lr_frac: Callable[[float], float] = lambda progress: 1.0,
    seed: int = 0,
) -> list[SimulatedEpoch]:
    """The network of every epoch of a run of ``epochs`` with ``steps`` each; ``lr_frac`` is the rate by progress."""
    if not method.can_be_simulated:
        raise MeristemError(_NEEDS_TRAINING)
    decider = Decider(method, space, budget, epochs, fine_tune=0, seed=seed)
    decider.steps_per_epoch = steps
    progress, device = decider.first_progress, torch.device("cpu")
    masks = {name: np.isin(np.arange(group.units), decider.first_units[name]) for name, group in space.groups.items()}
    lived = {name: mask.copy() for name, mask in masks.items()}
    strength, simulated, silence = decider.strength, list[SimulatedEpoch](), _Silence()
    records: list[dict[str, Any]] = []
    for epoch in range(epochs):
        units = LiveUnits(masks, lived, space.inactive_groups(masks))
        decider.begin(progress, units, strength, device)
        fraction = lr_frac(epoch / epochs)
        decider.keeper.drift(steps, fraction)
        decider.keeper.finish()
        simulated.append(SimulatedEpoch(masks, decider.prices.shares(widths_of(masks))))
        progress = decider.after_epoch(progress.with_steps(steps), units.active, fraction)
        records.append({"epoch": epoch + 1, "progress": (epoch + 1) / epochs, "metrics": {}})
        decision = decider.decide(progress, units, silence, records, device)
        progress = decider.accept(progress, decision)
        if decision is not None:
            strength = decision.strength
            masks = {name: np.array(decision.live.get(name, mask)) for name, mask in masks.items()}
            lived = {name: lived[name] | masks[name] for name in masks}
    return simulated
