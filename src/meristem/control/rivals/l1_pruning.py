"""L1-Pruning (Li et al., ICLR 2017): train the full network, prune the filters of smallest L1 norm once, fine-tune."""

from __future__ import annotations

import math

from meristem.control.exact import Exact
from meristem.control.first_network import FullNetwork
from meristem.control.method import Method, TrainingStage
from meristem.control.order import InStep
from meristem.control.proportions import EVEN
from meristem.control.schedule import Schedule
from meristem.control.scores import WeightNorms
from meristem.cost.ledger import FINE_TUNE, PRE_TRAIN
from meristem.gating.interfaces import WeightsOf


def l1_pruning(pretrain: float = 0.5) -> Method:
    """The comparison for pruning: the full network for half of the run, then the filters of largest L1 norm alone.

    ``pretrain`` is the share of the run after which it is pruned, the same share of every layer at once; as text it is
    ``l1:freeze=0.7``.
    """
    return Method(
        scores=WeightNorms(p=1.0, of=WeightsOf.FILTER),
        controller=Exact(InStep()),
        proportions=EVEN,
        schedule=Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=1.0, land_at=1.0),
        start=FullNetwork(),
        freeze=pretrain,  # where the schedule comes down to the budget, too
        stages=(TrainingStage(PRE_TRAIN, until=None), TrainingStage(FINE_TUNE, until=1.0)),
    )
