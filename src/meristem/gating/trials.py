"""Networks that are tried out: a copy with fewer units is trained for a moment and looked at on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from meristem.cost.ledger import FORWARD_AND_BACKWARD
from meristem.errors import MeristemError
from meristem.gating.held_out import HeldOutLoss, samples_in
from meristem.gating.interfaces import Trial
from meristem.space.arrays import BoolArray
from meristem.surgery.live import Live
from meristem.surgery.pruned_copy import pruned_copy

ShortTraining = Callable[[nn.Module, int, int], object]  # (model, steps, seed): train it for so many steps


class Trials:
    """Tries out copies of a live model. ``passes`` has what each has cost: forward passes of a sample, and its widths.

    A step of training counts as three.
    """

    def __init__(self, live: Live, held_out_loss: HeldOutLoss, short_training: ShortTraining) -> None:
        self._live, self._loss, self._train = live, held_out_loss, short_training
        self.passes: list[tuple[float, dict[str, int]]] = []

    def __call__(self, live: Mapping[str, BoolArray], steps: int, seed: int) -> Trial:
        model = pruned_copy(self._live, live)
        counted: list[float] = []
        with _counting(model, counted):
            model.train()
            if steps:
                self._train(model, steps, seed)
            if steps and not counted:
                raise MeristemError(
                    "short_training(model, steps, seed) did not call the model it was given: it must train that model "
                    "itself, with an optimizer of its own"
                )
            model.eval()
            with torch.no_grad():
                loss = float(self._loss(model))
        self.passes.append((sum(counted), {name: int(mask.sum()) for name, mask in live.items()}))
        # A network that a training has ruined is the worst of all, not an error.
        return Trial(loss if np.isfinite(loss) else float("inf"), model.state_dict())


@contextmanager
def _counting(model: nn.Module, counted: list[float]) -> Iterator[None]:
    """Forward passes of a sample, those with a backward pass as three."""

    def count(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        passes = FORWARD_AND_BACKWARD if torch.is_grad_enabled() else 1
        counted.append(passes * samples_in((*args, *kwargs.values())))

    handle = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
