"""An exponential moving average of a model's weights over the steps of a run, which grows as the model does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class AveragedWeights:
    """The averages are those of ``network``, a copy that a grower follows; running statistics are averaged, too.

    ``decay`` is reached by and by, as (1 + steps) / (10 + steps): the first weights say little.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.network, self._decay = copy.deepcopy(model).requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model: nn.Module, steps: int) -> None:
        """Take in the weights after a step; ``steps`` are done so far."""
        share = 1 - min(self._decay, (1 + steps) / (10 + steps))
        averages, weights = _tensors(self.network), _tensors(model)
        floating = [name for name, average in averages.items() if average.is_floating_point()]
        torch._foreach_lerp_([averages[name] for name in floating], [weights[name] for name in floating], share)
        for name in averages.keys() - set(floating):
            averages[name].copy_(weights[name])

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """The model computes with the averages, behind the gates that it has."""
        averages, weights = _tensors(self.network), _tensors(model)
        own = {name: tensor.detach().clone() for name, tensor in weights.items()}
        _write(weights, averages)
        try:
            yield
        finally:
            _write(weights, own)


@torch.no_grad()
def _write(tensors: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, those that are shared once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
