"""What decides and what acts know of each other: signals about units, weights unit by unit, pressure on them.

Protocols alone. Policies in `control` are written against them, `gating/gating.py` provides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from torch import Tensor

from meristem.space.arrays import BoolArray, FloatArray


class WeightsOf(Enum):
    """Which weights of a unit count."""

    UNIT = "all"  # that touch it, where it is made, passed along and read
    FILTER = "filter"  # the filter that makes it
    SCALE = "scale"  # the scales of the norms that pass it along, or, if there are none, the filter


@dataclass(frozen=True, eq=False)
class ReaderPatches:
    """What a layer computes outputs from at a few places, and where the units of one group are in it.

    An output is the sum over inputs c and places k of its kernel of weight[o, c, k] * patches[m, c, k], plus a bias.
    """

    weight: Tensor  # [outputs, inputs, kernel]
    patches: Tensor  # [places, inputs, kernel]
    units: Tensor  # of each input, among the live units of the group, or -1
    width: int  # live units of the group

    def by_unit(self, contributions: Tensor) -> Tensor:
        """The sum over the inputs of each unit; inputs are the last dimension."""
        owned = self.units >= 0
        total = contributions.new_zeros((*contributions.shape[:-1], self.width))
        index = self.units[owned].to(contributions.device)
        return total.index_add_(-1, index, contributions[..., owned.to(contributions.device)])


@dataclass(frozen=True, eq=False)
class Trial:
    """A network that was tried out: its loss on held-out data after a short training, and its weights by name."""

    loss: float
    weights: Mapping[str, Tensor]


class Signals(Protocol):
    """What can be asked about the live units. Each is computed when it is asked for, and not before."""

    def pull(self) -> Tensor:
        """g * dL/dg of all live units at this optimizer step, in one tensor, groups in the order of the space."""
        ...

    def norms(self, p: float, of: WeightsOf = WeightsOf.UNIT) -> dict[str, FloatArray]:
        """The p-norm of the weights of every unit: 0 for units that are not live, infinite where it has no weights."""
        ...

    def loss_rises(self, spreads: Mapping[str, float], draws: int, rng: np.random.Generator) -> dict[str, float]:
        """How much the held-out loss rises when the units of a group are disturbed; each group alone.

        What reads a unit is scaled by 1 + noise of the group's standard deviation; the mean over ``draws``.
        """
        ...

    def reader_patches(self, count: int, rng: np.random.Generator) -> dict[str, list[ReaderPatches]]:
        """What the layers that read each group are given on held-out data, ``count`` places at each call of one."""
        ...

    def try_out(self, live: Mapping[str, BoolArray], steps: int, seed: int) -> Trial:
        """Train a copy of the model that has only these of its live units for so many steps, and measure its loss.

        The model itself stays as it is. ``seed`` says which data: trials of one seed see the same.
        """
        ...


class GateSource(Protocol):
    """Whoever has the values of the gates: the keeper of the scores."""

    @property
    def scales_gates(self) -> bool:
        """Whether gates differ from 1, so that weights are scaled in the forward pass."""
        ...

    @property
    def reads_steps(self) -> bool:
        """Whether it wants the signals of every optimizer step."""
        ...

    def gates(self, group: str) -> Tensor | None:
        """The gates of a group's live units, or None when they are all 1."""
        ...

    def resting_gates(self, group: str) -> Tensor | None:
        """The same for evaluation and for what is exported."""
        ...


class WeightsByUnit(Protocol):
    """The weights of all live units, unit by unit. A weight between two units belongs to both."""

    def power_sums(self, p: float) -> Tensor:
        """The sum of |w|^p over the weights of every unit, in one flat tensor."""
        ...

    def by_group(self, values: Mapping[str, float]) -> Tensor:
        """The number of its group for every unit, in one flat tensor."""
        ...

    def add_decay(self, factors: Tensor) -> None:
        """Add factor * w to the gradient of every weight, for each unit that it belongs to."""
        ...

    def zero_below(self, threshold: float) -> None:
        """Set weights of at most the threshold to zero."""
        ...


class Pressure(Protocol):
    """What acts on weights at every step until the last decision, beside the task's gradient: a lasso, say."""

    @property
    def acts_on(self) -> WeightsOf:
        """The weights that are handed to it."""
        ...

    def before_step(self, weights: WeightsByUnit, unit_prices: Mapping[str, float], grad_scale: Tensor | None) -> None:
        """Gradients are final and the optimizer is about to step; ``grad_scale`` is what they are multiplied with.

        ``unit_prices`` say for every group what one more unit costs now, in what the budget names.
        """
        ...

    def after_step(self, weights: WeightsByUnit) -> None:
        """The optimizer has stepped."""
        ...
