"""Soft filter pruning (SFP, He et al., IJCAI 2018): weak filters are set to zero after every epoch, and may recover."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from meristem.control.controller import Decision, Traits, View
from meristem.control.exact import Exact
from meristem.control.first_network import FullNetwork
from meristem.control.method import Method, TrainingStage
from meristem.control.order import InStep
from meristem.control.proportions import EVEN
from meristem.control.schedule import Schedule
from meristem.control.scores import WeightNorms
from meristem.cost.ledger import PRUNE
from meristem.gating.interfaces import WeightsOf
from meristem.space.arrays import BoolArray


def soft_pruning() -> Method:
    """The comparison for pruning while training: weak filters are zero after every epoch and may recover (SFP).

    All tensors stay full until the last epoch, whose network is the small one; the authors prune after it.
    """
    return Method(
        scores=WeightNorms(p=2.0, of=WeightsOf.FILTER),
        controller=SoftPruning(),
        proportions=EVEN,
        schedule=Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=1.0, land_at=1.0),
        start=FullNetwork(),
        freeze=1.0,
        stages=(TrainingStage(PRUNE, until=1.0),),
    )


@dataclass(frozen=True)
class SoftPruning(Traits):
    """The filters of smallest norm in each layer, as many as do not fit the budget, are zero; at last they go.

    Only the weights of a filter are set to zero, neither norms nor momentum, and all are trained on. Every layer keeps
    the same share, the one that the budget allows. Layers that are added to one another share their units here, so
    that a unit is as strong as all of its filters together.
    """

    @property
    def keeps_proportions(self) -> bool:
        return True

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        at_budget = replace(view, limits=view.caps, last=True)
        kept = Exact(InStep()).decide(at_budget, rng).live
        return Decision(kept) if view.last else Decision(view.live, zeroed=_without(view.live, kept))


def _without(live: Mapping[str, BoolArray], kept: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    return {name: mask & ~kept[name] for name, mask in live.items()}
