"""L1-Pruning (Li et al., ICLR 2017): train the full network, prune the filters of smallest L1 norm once, fine-tune."""

from __future__ import annotations

import math

from meristem.control.exact import Exact
from meristem.control.first_network import FullNetwork
from meristem.control.method import Method, TrainingStage
from meristem.control.order import InStep
from meristem.control.schedule import Schedule
from meristem.control.scores import WeightNorms
from meristem.cost.ledger import FINE_TUNE, PRE_TRAIN


def l1_pruning(pretrain: float = 0.5) -> Method:
    """The comparison for pruning: the full network for half of the run, then the filters of largest L1 norm alone.

    ``pretrain`` is the share of the run after which it is pruned, the same share of every layer at once.
    """
    return Method(
        scores=WeightNorms(p=1.0, only_made=True),
        controller=Exact(InStep()),
        schedule=Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=pretrain, land_at=pretrain),
        start=FullNetwork(),
        freeze=pretrain,
        stages=(TrainingStage(PRE_TRAIN, pretrain), TrainingStage(FINE_TUNE, 1.0)),
    )
