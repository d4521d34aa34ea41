"""How much the held-out loss rises when the units of a group are disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meristem.errors import MeristemError
from meristem.gating.unit_gates import Gates
from meristem.surgery.live import Live

HeldOutLoss = Callable[[nn.Module], "float | Tensor"]  # the mean loss of a model on samples it is not trained on


class LossUnderNoise:
    """Measures the loss of a live model while the weights that read a group's units are scaled by 1 + noise.

    The noise is drawn anew at every call of the model, so that a loss over several batches sees as many draws.
    ``samples`` counts the samples that the model was called with; they are part of what training costs.
    """

    def __init__(self, live: Live, held_out_loss: HeldOutLoss) -> None:
        self._live, self._loss = live, held_out_loss
        self._noise: dict[str, Tensor] = {}
        self.samples = 0

    @torch.no_grad()
    def rises(self, spreads: Mapping[str, float], draws: int, rng: np.random.Generator) -> dict[str, float]:
        """For each group the rise of the loss under noise of this standard deviation, the mean over ``draws``."""
        with self._evaluating():
            undisturbed = self._measured()
            gates = Gates(self._live, self._noise.get)
            try:
                return {
                    group: float(np.mean([self._disturbed(group, spread, rng) for _ in range(draws)])) - undisturbed
                    for group, spread in spreads.items()
                }
            finally:
                gates.detach()

    def _disturbed(self, group: str, spread: float, rng: np.random.Generator) -> float:
        device = next(self._live.model.parameters()).device
        width = self._live.widths[group]

        def draw(module: nn.Module, args: Any) -> None:
            factors = 1 + spread * rng.standard_normal(width)
            self._noise[group] = torch.from_numpy(factors.astype(np.float32)).to(device)

        handle = self._live.model.register_forward_pre_hook(draw)
        try:
            return self._measured()
        finally:
            handle.remove()
            self._noise.clear()

    def _measured(self) -> float:
        loss = float(self._loss(self._live.model))
        if not np.isfinite(loss):
            raise MeristemError(f"held_out_loss returned {loss}; it must return the mean loss of the model it is given")
        return loss

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """In evaluation mode; samples are counted, and every module returns to the mode it had."""
        model = self._live.model
        modes = [(module, module.training) for module in model.modules()]

        def count(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            first = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
            self.samples += len(first) if first is not None and first.dim() else 1

        handle = model.register_forward_pre_hook(count, with_kwargs=True)
        model.eval()
        try:
            yield
        finally:
            handle.remove()
            for module, mode in modes:
                module.training = mode
