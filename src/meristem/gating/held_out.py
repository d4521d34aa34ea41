"""Held-out data: how much the loss rises when units are disturbed, and what the layers that read them are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meristem.errors import MeristemError
from meristem.gating.interfaces import ReaderPatches
from meristem.gating.reader_patches import reader_patches
from meristem.gating.unit_gates import Gates
from meristem.surgery.live import Live

HeldOutLoss = Callable[[nn.Module], "float | Tensor"]  # the mean loss of a model on samples it is not trained on


def samples_in(inputs: Iterable[Any]) -> int:
    """How many samples a model is called with: as many as the first tensor has."""
    first = next((each for each in inputs if isinstance(each, Tensor)), None)
    return len(first) if first is not None and first.dim() else 1


class HeldOut:
    """A live model, and its loss on samples that it is not trained on.

    ``samples`` counts those that the model was called with; they are part of what training costs.
    """

    def __init__(self, live: Live, held_out_loss: HeldOutLoss) -> None:
        self._live, self._loss = live, held_out_loss
        self._noise: dict[str, Tensor] = {}
        self.samples = 0

    @torch.no_grad()
    def rises(self, spreads: Mapping[str, float], draws: int, rng: np.random.Generator) -> dict[str, float]:
        """For each group the rise of the loss while the weights that read its units are scaled by 1 + noise.

        The noise is drawn anew at every call of the model, so that a loss over several batches sees as many draws;
        ``spreads`` are its standard deviations, and the rise is the mean over ``draws`` of the loss.
        """
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

    def reader_patches(self, count: int, rng: np.random.Generator) -> dict[str, list[ReaderPatches]]:
        """What the layers that read each group are given, see `gating/reader_patches.py`."""
        with self._evaluating():
            return reader_patches(self._live, self._measured, count, rng)

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
            self.samples += samples_in((*args, *kwargs.values()))

        handle = model.register_forward_pre_hook(count, with_kwargs=True)
        model.eval()
        try:
            yield
        finally:
            handle.remove()
            for module, mode in modes:
                module.training = mode
