"""MorphNet (Gordon et al., CVPR 2018): units shrink under a penalty on their cost, then one factor widens the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.first_network import FullNetwork
from meristem.control.fit_budget import fit
from meristem.control.method import Method, TrainingStage
from meristem.control.proportions import EVEN
from meristem.control.rivals.iss import alive_units
from meristem.control.schedule import Schedule
from meristem.control.scores import WeightNorms
from meristem.control.text_settings import number
from meristem.cost.ledger import FINE_TUNE, SEARCH
from meristem.errors import MeristemError
from meristem.gating.interfaces import WeightsByUnit, WeightsOf
from meristem.space.arrays import BoolArray, FloatArray

_EPSILON = 1e-12  # under the root, so that it has a slope at zero


def morphnet() -> Method:
    """The comparison for searching widths: units die under a penalty on their cost, then all widen alike (MorphNet).

    The authors train the network that was found from scratch: in a sweep that is the arm ``direct:of=morphnet``. By
    itself this goes on with the weights it has, and the units that widening adds come in fresh.
    """
    return Method(
        scores=WeightNorms(p=2.0, of=WeightsOf.SCALE),
        controller=ShrinkThenWiden(),
        schedule=Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=1.0, land_at=1.0),
        proportions=EVEN,
        start=FullNetwork(),
        pressure=CostPenalty(),
        freeze=0.5,
        stages=(TrainingStage(SEARCH, until=None), TrainingStage(FINE_TUNE, until=1.0)),
    )


@dataclass(frozen=True)
class CostPenalty:
    """A lasso on the scales of norms, each as strong as one more unit of its group costs now (Eq. Cost penalty).

    That is the authors' penalty: summed over the layers, what a unit adds to the cost of all layers that make or read
    it, for the units that are alive. The authors choose the strength by trying several; the widening then meets the
    budget with any.
    """

    strength: float = number(0.02)

    acts_on = WeightsOf.SCALE

    def __post_init__(self) -> None:
        if not 0 <= self.strength < math.inf:
            raise MeristemError(f"the strength of a cost penalty must be a number of at least 0, got {self.strength!r}")

    def before_step(self, weights: WeightsByUnit, unit_prices: Mapping[str, float], grad_scale: Tensor | None) -> None:
        slopes = self.strength * weights.by_group(unit_prices) / (weights.power_sums(2.0) + _EPSILON).sqrt()
        weights.add_decay(slopes if grad_scale is None else slopes * grad_scale.to(slopes.device))

    def after_step(self, weights: WeightsByUnit) -> None: ...


@dataclass(frozen=True)
class ShrinkThenWiden(Traits):
    """Units whose scale falls below ``threshold`` go; at the last decision all widths are multiplied to the budget.

    The factor is one for all groups, as far as they have units: those that are full stay so.
    """

    threshold: float = number(0.01)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        groups = view.prices.space.groups
        norms = {name: np.where(values < self.threshold, 0.0, values) for name, values in view.scores.items()}
        left = {name: alive_units(norms[name], view.live[name], groups[name].min_units) for name in norms}
        if not view.last:
            return Decision(left)
        return Decision(fit(view.prices, _widened(left, view.scores), view.caps))


def _widened(left: Mapping[str, BoolArray], scores: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The preference that multiplies all widths with one factor: units that are left first, then the others."""
    preference = {}
    for name, width in widths_of(left).items():
        order = np.lexsort((-scores[name], ~left[name]))
        preference[name] = np.empty(len(order))
        preference[name][order] = -np.arange(len(order)) / max(1, width)
    return preference
