"""How a run learns: the settings of its optimizer and of fine-tuning, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor, nn

from meristem.errors import MeristemError
from meristem_bench.runs.lr_schedule import Cosine, LrSchedule
from meristem_bench.runs.optimizer_kind import SGD, Numbers, OptimizerKind, tables
from meristem_bench.runs.settings import Amount, Count, Fixed, Fraction, Named, check_settings
from meristem_bench.runs.several_optimizers import AnyOptimizer, SeveralOptimizers


def _every_parameter(name: str, parameter: Tensor) -> bool:
    return True


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its numbers; which of them it has depends on its kind."""

    lr: Amount  # before the schedule and the warmup are applied, step by step
    schedule: Annotated[LrSchedule, Named("rate")] = Cosine()
    warmup: Amount = 0.0  # epochs over which the learning rate rises from almost nothing
    kind: Annotated[OptimizerKind, Named("optimizer_kind")] = SGD()
    momentum: Fraction = 0.9
    nesterov: bool = False
    weight_decay: Amount = 0.0
    decays: Fixed[Callable[[str, Tensor], bool]] = _every_parameter  # which parameters weight_decay applies to
    clip: Amount = 0.0  # the largest norm of all gradients together, to which longer ones are scaled; 0: no clipping
    fused: bool = False  # the step of all parameters in one kernel, where torch has that

    def __post_init__(self) -> None:
        check_settings(self)
        self.kind.check(self.momentum, self.nesterov, self.fused)

    def build(self, model: nn.Module) -> AnyOptimizer:
        numbers = Numbers(self.lr, self.momentum, self.nesterov, self.fused, tables(model))
        optimizers = self.kind.build(self._parameter_groups(model), numbers)
        return optimizers[0] if len(optimizers) == 1 else SeveralOptimizers(optimizers)

    def _parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """One group, or two where some parameters are not decayed."""
        decayed = {name: self.decays(name, parameter) for name, parameter in model.named_parameters()}
        groups = [
            {"params": [p for name, p in model.named_parameters() if decayed[name] is kind], "weight_decay": decay}
            for kind, decay in ((True, self.weight_decay), (False, 0.0))
        ]
        return [group for group in groups if group["params"]]


@dataclass(frozen=True)
class FineTuning:
    """Epochs after those of growing, in which the network that was found is trained further."""

    epochs: Annotated[Count, Named("fine_tune")] = 0
    lr: Annotated[Amount, Named("fine_tune_lr")] = 0.0  # at the start; 0: that of the optimizer
    schedule: Annotated[LrSchedule | None, Named("fine_tune_rate")] = None  # None: that of the optimizer, once more

    def __post_init__(self) -> None:
        check_settings(self)
        if (self.lr or self.schedule) and not self.epochs:
            raise MeristemError("fine_tune_lr and fine_tune_rate are of a fine-tuning, but fine_tune is 0 epochs")
