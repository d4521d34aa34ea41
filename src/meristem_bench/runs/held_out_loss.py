"""The loss of a run's network on samples that methods may test widths with."""

from __future__ import annotations

from itertools import islice

import torch
from torch import Tensor, nn

from meristem_bench.runs.data import Data
from meristem_bench.runs.forward import Forward
from meristem_bench.runs.run import Run

_BATCHES = 4


class HeldOutLoss:
    """The mean loss over a few batches, always the same: of the validation split, or, if there is none, of training.

    Batches of training are augmented as in training; they are drawn from the seed of the run.
    """

    def __init__(self, run: Run, data: Data) -> None:
        self._run = run
        drawn = torch.Generator().manual_seed(run.seed)
        batches = data.evaluate("validation", run.batch) if data.has("validation") else data.train(run.batch, drawn)
        self._batches: list[tuple[Tensor, Tensor]] = list(islice(batches, _BATCHES))

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> float:
        network, device = Forward(self._run, model), self._run.machine.device
        losses = [self._run.task.loss(network(inputs), targets.to(device)) for inputs, targets in self._batches]
        return float(torch.stack(losses).mean())
