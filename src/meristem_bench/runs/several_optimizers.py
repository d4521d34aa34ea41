"""Several optimizers that step together, each of its own parameters, and their learning rates on one schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import optim


class SeveralOptimizers:
    """What a training loop does with an optimizer, for all of them."""

    def __init__(self, optimizers: Sequence[optim.Optimizer]) -> None:
        self.all = list(optimizers)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.all for group in optimizer.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.all:
            optimizer.zero_grad(set_to_none)

    def step(self) -> None:
        for optimizer in self.all:
            optimizer.step()


class SeveralSchedulers:
    """The same for their schedulers, which are at the same step."""

    def __init__(self, schedulers: Sequence[optim.lr_scheduler.LambdaLR]) -> None:
        self._all = list(schedulers)

    @property
    def last_epoch(self) -> int:
        return self._all[0].last_epoch

    def step(self) -> None:
        for scheduler in self._all:
            scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return {"all": [scheduler.state_dict() for scheduler in self._all]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for scheduler, own in zip(self._all, state["all"], strict=True):
            scheduler.load_state_dict(own)


AnyOptimizer = optim.Optimizer | SeveralOptimizers
AnyScheduler = optim.lr_scheduler.LambdaLR | SeveralSchedulers


def scheduled(optimizer: AnyOptimizer, factor: Callable[[int], float]) -> AnyScheduler:
    """The learning rates of all, multiplied by a factor of the step."""
    if isinstance(optimizer, SeveralOptimizers):
        return SeveralSchedulers([optim.lr_scheduler.LambdaLR(each, factor) for each in optimizer.all])
    return optim.lr_scheduler.LambdaLR(optimizer, factor)
