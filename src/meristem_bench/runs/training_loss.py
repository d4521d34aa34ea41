"""The loss of a training step, of samples that may be mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.errors import MeristemError
from meristem_bench.runs.run import Run
from meristem_bench.runs.smoothing import smoothed


class TrainingLoss:
    """That of the run's task; with MixUp (Zhang et al. 2018), of inputs that are mixed in pairs.

    A batch is mixed with itself in another order by one share, drawn from the generator of the run, and the loss is
    that of both targets by the same share: so it is for any task whose loss is a mean over samples.
    """

    def __init__(self, run: Run, generator: torch.Generator) -> None:
        self._task, self._alpha, self._name = smoothed(run.task, run.smoothing), run.smoothing.mixup, run.name
        self._generator = generator
        self._share, self._partners = 1.0, torch.empty(0, dtype=torch.long)

    def mix(self, inputs: Tensor) -> Tensor:
        """The inputs of the coming step, on the host; what was drawn holds for the next call of the loss."""
        if not self._alpha:
            return inputs
        if not inputs.is_floating_point():
            raise MeristemError(f"{self._name}: mixup mixes images and other real numbers, not {inputs.dtype}")
        seed = torch.randint(2**62, (), generator=self._generator).item()  # one number, whatever a rank's rows are
        drawn = np.random.default_rng(int(seed))
        self._share = float(drawn.beta(self._alpha, self._alpha))
        self._partners = torch.from_numpy(drawn.permutation(len(inputs)))
        return inputs.lerp(inputs[self._partners], 1 - self._share)

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        loss = self._task.loss(outputs, targets)
        if not self._alpha:
            return loss
        return self._share * loss + (1 - self._share) * self._task.loss(outputs, targets[self._partners])
