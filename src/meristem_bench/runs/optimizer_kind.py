"""Kinds of optimizers: what is made of the parameters of a model, and how it is written as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import optim

from meristem.errors import MeristemError

ParamGroups = Sequence[dict[str, Any]]
_FORMS = "sgd, adamw, or adamw/0.9,0.99 (its two betas)"


@runtime_checkable
class OptimizerKind(Protocol):
    """``str`` of a kind is what `parse_optimizer_kind` reads back."""

    def check(self, momentum: float, nesterov: bool) -> None:
        """Refuse what does not go together."""
        ...

    def build(self, groups: ParamGroups, lr: float, momentum: float, nesterov: bool) -> optim.Optimizer: ...


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    def check(self, momentum: float, nesterov: bool) -> None:
        if nesterov and not momentum:
            raise MeristemError("nesterov needs a momentum, but momentum is 0")

    def build(self, groups: ParamGroups, lr: float, momentum: float, nesterov: bool) -> optim.Optimizer:
        return optim.SGD(groups, lr, momentum, nesterov=nesterov)

    def __str__(self) -> str:
        return "sgd"


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    >>> str(AdamW()), str(AdamW((0.9, 0.95)))
    ('adamw/0.9,0.999', 'adamw/0.9,0.95')
    """

    betas: tuple[float, float] = (0.9, 0.999)

    def __post_init__(self) -> None:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise MeristemError(f"the betas of adamw must be at least 0 and less than 1, got {self.betas}")

    def check(self, momentum: float, nesterov: bool) -> None:
        if momentum or nesterov:
            raise MeristemError("adamw has betas instead of a momentum: set momentum=0 and nesterov=no")

    def build(self, groups: ParamGroups, lr: float, momentum: float, nesterov: bool) -> optim.Optimizer:
        return optim.AdamW(groups, lr, self.betas)

    def __str__(self) -> str:
        return f"adamw/{self.betas[0]!r},{self.betas[1]!r}"


def parse_optimizer_kind(text: str) -> OptimizerKind:
    """The kind that a text stands for.

    >>> parse_optimizer_kind("adamw/0.9,0.99").betas
    (0.9, 0.99)
    """
    name, slash, rest = text.partition("/")
    if name == "sgd" and not slash:
        return SGD()
    if name == "adamw":
        try:
            first, second = map(float, rest.split(",")) if slash else AdamW().betas
        except ValueError:
            pass
        else:
            return AdamW((first, second))
    raise MeristemError(f"there is no optimizer {text!r}; write {_FORMS}")
