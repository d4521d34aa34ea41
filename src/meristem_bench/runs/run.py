"""A run: everything that decides its outcome as one frozen object, composed of the settings of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from torch import nn

from meristem.errors import MeristemError
from meristem_bench.runs.data import Data, DataConfig
from meristem_bench.runs.dropout import Dropout
from meristem_bench.runs.growth import GrowthConfig
from meristem_bench.runs.machine import Machine
from meristem_bench.runs.optimizer import FineTuning, OptimizerConfig
from meristem_bench.runs.settings import (
    Count,
    Fixed,
    Positive,
    at_most,
    check_settings,
    parse_settings,
    replace_fields,
    settings_as_json,
)
from meristem_bench.runs.smoothing import Smoothing, smoothed
from meristem_bench.runs.task import Task


@dataclass(frozen=True)
class Run:
    """What is run. Recipes return one; ``with_settings`` changes what a user may change."""

    name: Fixed[str]
    about: Fixed[str]  # one sentence
    model: Fixed[
        Callable[..., nn.Module]
    ]  # makes it at full size; called with classes=..., keep=... and context=... if they are set
    load: Fixed[Callable[[Run], Data]]  # reads the data as `data` says
    task: Fixed[Task]
    epochs: Positive  # of growing
    batch: Positive
    optimizer: OptimizerConfig
    fine_tuning: FineTuning = FineTuning()
    growth: GrowthConfig = GrowthConfig()
    dropout: Dropout = Dropout()
    smoothing: Smoothing = Smoothing()
    data: DataConfig = DataConfig()
    machine: Machine = Machine()
    pretrained: str | None = None  # the file of trained weights that the model starts from, as far as they fit
    seed: Annotated[Count, at_most(2**63)] = 0
    network: Fixed[str | None] = None  # MODULE:FUNCTION that makes the model, if it is not the recipe's own
    recipe: Fixed[str | None] = None  # MODULE:FUNCTION that returned this, if it is a recipe of the user's own

    def __post_init__(self) -> None:
        check_settings(self)
        warmup, lr, fine_tune_lr = self.optimizer.warmup, self.optimizer.lr, self.fine_tuning.lr
        if warmup > self.epochs:
            raise MeristemError(f"the warmup of {warmup:g} epochs is longer than the run, which has {self.epochs}")
        if fine_tune_lr and not lr:
            raise MeristemError(f"fine_tune_lr={fine_tune_lr:g} needs an lr that is not 0")
        smoothed(self.task, self.smoothing)
        if self.smoothing.ema and self.fine_tuning.epochs and self.growth.policies.gate.scales:
            raise MeristemError(
                f"ema={self.smoothing.ema:g} averages weights, but the method {self.growth.method} makes its gates a "
                f"part of them when fine-tuning begins: leave out ema or fine_tune"
            )
        if self.pretrained is not None and self.growth.depth and self.growth.policies.grows:
            raise MeristemError(
                f"pretrained={self.pretrained} and depth=yes do not go together: of blocks that are built alike and "
                f"start absent only one is stored, and the weights of the others would be lost; leave out one of them"
            )

    @property
    def all_epochs(self) -> int:
        """Those of growing and of fine-tuning."""
        return self.epochs + self.fine_tuning.epochs

    def replace(self, **changes: Any) -> Run:
        """The same run with other values, of its own fields or, by the names of their settings, of its parts.

        ``run.replace(name="short", epochs=12, lr=0.05)``
        """
        return replace_fields(self, changes)

    def with_settings(self, settings: Mapping[str, Any]) -> Run:
        """The same run with other settings, given as text or as values."""
        return self.replace(**parse_settings(Run, settings))

    @property
    def settings(self) -> dict[str, Any]:
        """What a user may change, as JSON holds it; ``with_settings`` understands it."""
        return settings_as_json(self)
