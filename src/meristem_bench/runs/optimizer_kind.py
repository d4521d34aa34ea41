"""Kinds of optimizers: what is made of the parameters of a model, and how it is written as text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn, optim

from meristem.errors import MeristemError

ParamGroups = Sequence[dict[str, Any]]
_FORMS = "sgd, adamw, nadam, radam, lion or muon; adamw/0.9,0.99 gives the two betas of those that have some"


@dataclass(frozen=True)
class Numbers:
    """What kinds of optimizers are made with."""

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    fused: bool = False  # all parameters in one kernel of torch's
    tables: Collection[int] = ()  # the ids of parameters in which rows are looked up

    @property
    def fused_or_not(self) -> dict[str, bool]:
        """The keyword, where it is wanted: otherwise torch chooses among its ways, as it does by itself."""
        return {"fused": True} if self.fused else {}


@runtime_checkable
class OptimizerKind(Protocol):
    """``str`` of a kind is what `parse_optimizer_kind` reads back."""

    def check(self, momentum: float, nesterov: bool, fused: bool) -> None:
        """Refuse what does not go together."""
        ...

    def build(self, groups: ParamGroups, numbers: Numbers) -> list[optim.Optimizer]:
        """One optimizer, or several of different parameters that step together."""
        ...


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    def check(self, momentum: float, nesterov: bool, fused: bool) -> None:
        if nesterov and not momentum:
            raise MeristemError("nesterov needs a momentum, but momentum is 0")

    def build(self, groups: ParamGroups, numbers: Numbers) -> list[optim.Optimizer]:
        more = numbers.fused_or_not
        return [optim.SGD(groups, numbers.lr, numbers.momentum, nesterov=numbers.nesterov, **more)]

    def __str__(self) -> str:
        return "sgd"


@dataclass(frozen=True)
class _WithBetas:
    """Moving averages with two betas in place of a momentum; weight decay is decoupled."""

    betas: tuple[float, float] = (0.9, 0.999)

    name: ClassVar[str]
    can_be_fused: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise MeristemError(f"the betas of {self.name} must be at least 0 and less than 1, got {self.betas}")

    def check(self, momentum: float, nesterov: bool, fused: bool) -> None:
        if momentum or nesterov:
            raise MeristemError(f"{self.name} has betas instead of a momentum: set momentum=0 and nesterov=no")
        if fused and not self.can_be_fused:
            raise MeristemError(f"torch has no fused {self.name}: leave out fused")

    def __str__(self) -> str:
        return f"{self.name}/{self.betas[0]!r},{self.betas[1]!r}"


@dataclass(frozen=True)
class AdamW(_WithBetas):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    >>> str(AdamW()), str(AdamW((0.9, 0.95)))
    ('adamw/0.9,0.999', 'adamw/0.9,0.95')
    """

    name: ClassVar[str] = "adamw"
    can_be_fused: ClassVar[bool] = True

    def build(self, groups: ParamGroups, numbers: Numbers) -> list[optim.Optimizer]:
        return [optim.AdamW(groups, numbers.lr, self.betas, **numbers.fused_or_not)]


@dataclass(frozen=True)
class NAdam(_WithBetas):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    name: ClassVar[str] = "nadam"

    def build(self, groups: ParamGroups, numbers: Numbers) -> list[optim.Optimizer]:
        return [optim.NAdam(groups, numbers.lr, self.betas, decoupled_weight_decay=True)]


@dataclass(frozen=True)
class RAdam(_WithBetas):
    """Adam whose first steps are rectified (Liu et al. 2020)."""

    name: ClassVar[str] = "radam"

    def build(self, groups: ParamGroups, numbers: Numbers) -> list[optim.Optimizer]:
        return [optim.RAdam(groups, numbers.lr, self.betas, decoupled_weight_decay=True)]


@dataclass(frozen=True)
class Lion(_WithBetas):
    """The sign of an interpolated momentum (Chen et al. 2023), of the package lion-pytorch."""

    betas: tuple[float, float] = (0.9, 0.99)
    name: ClassVar[str] = "lion"

    def build(self, groups: ParamGroups, numbers: Numbers) -> list[optim.Optimizer]:
        try:
            from lion_pytorch import Lion as Optimizer
        except ImportError:
            raise MeristemError("lion is no optimizer of torch's: pip install lion-pytorch") from None
        return [Optimizer(list(groups), numbers.lr, self.betas)]


@dataclass(frozen=True)
class Muon:
    """Orthogonalised momentum (Jordan et al. 2024) for matrices; AdamW for all else, which it is scaled to.

    What rows are looked up in is no matrix that is multiplied, so AdamW has it, too.
    """

    def check(self, momentum: float, nesterov: bool, fused: bool) -> None:
        if fused:
            raise MeristemError("torch has no fused muon: leave out fused")

    def build(self, groups: ParamGroups, numbers: Numbers) -> list[optim.Optimizer]:
        if not hasattr(optim, "Muon"):
            raise MeristemError("muon needs torch 2.9 or later: take another optimizer_kind")

        def part(wants_matrices: bool) -> list[dict[str, Any]]:
            kept = [
                {**group, "params": [each for each in group["params"] if is_matrix(each) is wants_matrices]}
                for group in groups
            ]
            return [group for group in kept if group["params"]]

        def is_matrix(parameter: Tensor) -> bool:
            return parameter.dim() == 2 and id(parameter) not in numbers.tables

        found: list[optim.Optimizer] = []
        if matrices := part(wants_matrices=True):
            more: Any = {"momentum": numbers.momentum, "nesterov": numbers.nesterov, "adjust_lr_fn": "match_rms_adamw"}
            found.append(optim.Muon(matrices, numbers.lr, **more))
        if others := part(wants_matrices=False):
            found.append(optim.AdamW(others, numbers.lr))
        return found

    def __str__(self) -> str:
        return "muon"


def tables(model: nn.Module) -> frozenset[int]:
    """The ids of the parameters in which rows are looked up."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return frozenset(id(module.weight) for module in model.modules() if isinstance(module, kinds))


_PLAIN: dict[str, OptimizerKind] = {"sgd": SGD(), "muon": Muon()}
_BY_BETAS: dict[str, Any] = {kind.name: kind for kind in (AdamW, NAdam, RAdam, Lion)}


def parse_optimizer_kind(text: str) -> OptimizerKind:
    """The kind that a text stands for.

    >>> parse_optimizer_kind("adamw/0.9,0.99").betas
    (0.9, 0.99)
    """
    name, slash, rest = text.partition("/")
    if name in _PLAIN and not slash:
        return _PLAIN[name]
    if name in _BY_BETAS:
        try:
            first, second = map(float, rest.split(",")) if slash else _BY_BETAS[name]().betas
        except ValueError:
            pass
        else:
            kind: OptimizerKind = _BY_BETAS[name]((first, second))
            return kind
    raise MeristemError(f"there is no optimizer {text!r}; write {_FORMS}")
