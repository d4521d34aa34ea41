"""A short training of a network that is tried out: some steps on the run's own data, at a small rate."""

from __future__ import annotations

from contextlib import closing

import torch
from torch import nn

from meristem_bench.runs.data import Data
from meristem_bench.runs.forward import TrainingForward
from meristem_bench.runs.run import Run

_RATE = 0.01  # of the run's first learning rate: 0.001 where that is 0.1, as NetAdapt's authors have it


class ShortTraining:
    """Trains a model for some steps by the run's kind of optimizer; the seed says which batches it sees."""

    def __init__(self, run: Run, data: Data) -> None:
        self._run, self._data = run, data

    def __call__(self, model: nn.Module, steps: int, seed: int) -> None:
        run, order = self._run, torch.Generator().manual_seed(seed)
        optimizer = run.replace(lr=_RATE * run.optimizer.lr).optimizer.build(model)
        done = 0
        while done < steps:
            network = TrainingForward(run, model)  # anew for every pass: a state that is carried begins with it
            with closing(self._data.train(run.batch, order)) as batches:  # type: ignore[type-var]
                for inputs, targets in batches:
                    loss = run.task.loss(network(inputs), targets.to(run.machine.device)) * max(1, run.data.unroll)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                    if run.optimizer.clip:
                        nn.utils.clip_grad_norm_(model.parameters(), run.optimizer.clip)
                    optimizer.step()
                    done += 1
                    if done == steps:
                        break
