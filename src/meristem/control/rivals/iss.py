"""ISS (Wen et al., ICLR 2018), the method that growing recurrent networks is compared with: units die under a lasso.

Training starts from the full network. A group lasso draws all weights that touch a unit to zero together; a unit whose
weights are all zero is dead. The authors' network has two layers of an LSTM; here it is any that can be traced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.first_network import FullNetwork
from meristem.control.fit_budget import fit
from meristem.control.method import Method
from meristem.control.proportions import EVEN
from meristem.control.schedule import Schedule
from meristem.control.scores import WeightNorms
from meristem.control.text_settings import flag, number
from meristem.errors import MeristemError
from meristem.gating.interfaces import WeightsByUnit, WeightsOf
from meristem.space.arrays import BoolArray, FloatArray

_EPSILON = 1e-8  # under the root, so that it has a slope at zero


def iss(lasso: Lasso | None = None, compact: bool = True) -> Method:
    """The comparison for recurrent networks: the full network at first, whose units die under a group lasso (ISS).

    After the last decision what is left is trained without the lasso.
    """
    return Method(
        scores=WeightNorms(p=2.0),
        controller=PruneDead(compact),
        # The full network until the last decision.
        schedule=Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=1.0, land_at=1.0),
        proportions=EVEN,
        start=FullNetwork(),
        pressure=lasso or Lasso(),
    )


@dataclass(frozen=True)
class Lasso:
    """A penalty on the norm of the weights of each unit (Eq. Lasso), as long as a decision is still to come.

    After each step weights of at most ``threshold`` are zero. Both numbers are the authors', for their large network,
    its loss (a sum over 35 words), its learning rate of 1 and its 73 000 steps. What a norm loses in a run is the sum
    of the learning rates times the strength, so that a shorter run needs a higher one. The threshold must rise with it:
    in the end a norm swings about zero by what a step takes, and only weights below the threshold stay there.
    """

    strength: float = number(0.00245)
    threshold: float = number(1e-4)

    acts_on = WeightsOf.UNIT

    def __post_init__(self) -> None:
        for name in ("strength", "threshold"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise MeristemError(f"the {name} of a lasso must be a number of at least 0, got {value!r}")

    def before_step(self, weights: WeightsByUnit, unit_prices: Mapping[str, float], grad_scale: Tensor | None) -> None:
        slopes = self.strength / (weights.power_sums(2.0) + _EPSILON).sqrt()
        weights.add_decay(slopes if grad_scale is None else slopes * grad_scale.to(slopes.device))

    def after_step(self, weights: WeightsByUnit) -> None:
        weights.zero_below(self.threshold)


@dataclass(frozen=True)
class PruneDead(Traits):
    """Nothing is planned: units live until their score, the norm of their weights, is zero; none comes back.

    Dead ones go at every decision, or with ``compact=False`` only at the last. There the budget is a cap: if what is
    left costs more, the units of smallest norm go until it fits; if it costs less, it stays so.
    """

    compact: bool = flag(True)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        if not (self.compact or view.last):
            return Decision(view.live)
        groups = view.prices.space.groups
        left = {
            name: alive_units(norms, view.live[name], groups[name].min_units) for name, norms in view.scores.items()
        }
        if view.last and not view.prices.fits(widths_of(left), view.caps):
            left = fit(
                view.prices, {name: np.where(left[name], view.scores[name], -np.inf) for name in left}, view.caps
            )
        return Decision(left)


def alive_units(norms: FloatArray, live: BoolArray, min_units: int) -> BoolArray:
    """The live units that are not dead; where too few are left, those of largest norm, dead or not."""
    alive = live & (norms > 0)
    missing = min(min_units, int(live.sum())) - int(alive.sum())
    if missing > 0:
        order = np.argsort(np.where(live & ~alive, -norms, np.inf), kind="stable")
        alive[order[:missing]] = True
    return alive
