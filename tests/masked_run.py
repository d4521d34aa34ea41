"""The masked run of a small network at full size, which a run that is resized on the way is compared with."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim

from helpers import loss, random_target, whole
from meristem import Live, Space
from meristem.testing import masked_reference

Parameters = Any
# Of these names fresh units start with the mean, and with the weights; of all others with zero.
SCALES = {"exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "exp_inf", "acc_delta", "step_size"}
COPIES = {"ax"}


def net() -> nn.Module:
    """Convolutions and linear layers without norms: a bias under a norm has a gradient of rounding noise alone."""
    torch.manual_seed(0)
    layers = [nn.Conv1d(3, 8, 3), nn.GELU(), nn.Conv1d(8, 6, 3), nn.Tanh(), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


INPUTS = (torch.randn(9, 3, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64),)


class MaskedRun:
    """The full-size network, trained with what is not live masked."""

    def __init__(
        self,
        space: Space,
        kind: Callable[[Parameters], optim.Optimizer],
        live: Live,
        scales: Collection[str] = SCALES,
        copies: Collection[str] = COPIES,
    ) -> None:
        self.model, self.space, self.scales, self.copies = net(), space, scales, copies
        self.optimizer = kind(self.model.parameters())
        self.alive = self.positions(live)
        self.lived = {name: alive.clone() for name, alive in self.alive.items()}
        self.masks = live.masks

    def positions(self, live: Live) -> dict[str, Tensor]:
        """Which elements of every parameter are live."""
        found = {}
        for name, parameter in self.model.named_parameters():
            found[name] = torch.zeros(parameter.shape, dtype=torch.bool)
            found[name][np.ix_(*[live.positions(axis) for axis in self.space.axes(name)])] = True
        return found

    def gradients(self) -> dict[str, Tensor]:
        reference = masked_reference(self.model, self.space, self.masks, INPUTS)
        loss(reference.outputs).backward()
        return {name: reference.parameters[name].grad for name, _ in self.model.named_parameters()}

    def step(self) -> None:
        for name, gradient in self.gradients().items():
            self.model.get_parameter(name).grad = gradient
        before = [{key: value.clone() for key, value in tensors.items()} for tensors in self.tensors().values()]
        self.optimizer.step()
        for (name, tensors), kept in zip(self.tensors().items(), before, strict=True):
            for key, value in tensors.items():
                if key in kept:
                    value[~self.alive[name]] = kept[key][~self.alive[name]]
                else:  # the state has come into being with this step
                    value[~self.alive[name]] = 0.0

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The parameter, and what the optimizer keeps element by element."""
        return {
            name: {"": parameter.data}
            | {
                key: value
                for key, value in self.optimizer.state[parameter].items()
                if isinstance(value, Tensor) and value.shape == parameter.shape
            }
            for name, parameter in self.model.named_parameters()
        }

    def resize(self, live: Live) -> None:
        alive = self.positions(live)
        for name, tensors in self.tensors().items():
            fresh = alive[name] & ~self.lived[name]
            for key, value in tensors.items():
                if key in self.scales:
                    value[fresh] = value[self.alive[name]].mean()
                elif key in self.copies:
                    value[fresh] = tensors[""][fresh]
                elif key:
                    value[fresh] = 0.0
            self.lived[name] |= alive[name]
        self.alive, self.masks = alive, live.masks


def targets(space: Space) -> list[dict[str, list[int]]]:
    rng = np.random.default_rng(3)
    return [whole(space), random_target(space, rng), random_target(space, rng), whole(space)]
