"""A run: everything that decides its outcome as one frozen object. `loop.py` carries it out."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

import meristem
from meristem.control.budget import Budget
from meristem.control.method_text import named_method
from meristem.errors import FileError, MeristemError
from meristem_bench.runs.folder import Folder, read_json
from meristem_bench.runs.lr_schedule import Cosine, Rate
from meristem_bench.runs.settings import SETTINGS, budget_text, changed, check_kinds
from meristem_bench.runs.task import Task

Record = dict[str, Any]
RESULT_FORMAT = "meristem-result-1"
DENSE = "dense"  # the method that trains the full model as it is
# Settings that do not decide the outcome: a run may go on with others. What lies under a path does decide it, but that
# is found out in another way: by the number of steps, and by the widths a checkpoint was made with.
MOVABLE = ("data_dir", "workers", "widths")
DIRECT = "direct"  # the method that trains the network another run has grown, from scratch


class Data(Protocol):
    """Batches of inputs and targets. Errors of the data's own are ValueErrors.

    Data that find out by themselves how many classes there are (the words of a text) say so in ``classes``.
    """

    @property
    def example(self) -> tuple[Tensor, ...]:
        """One sample, as the model is called with it."""
        ...

    def steps(self, batch: int) -> int:
        """Training steps in an epoch."""
        ...

    def train(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch; all randomness comes from the generator."""
        ...

    def has(self, split: str) -> bool:
        """Whether there is anything in ``validation``; ``test`` is always there."""
        ...

    def evaluate(self, split: str, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole of ``validation`` or ``test``, always in the same order."""
        ...


_PLAIN = (bool, int, float, str)  # settings that are held as they are
_NOT_NEGATIVE = (
    *("lr", "warmup", "weight_decay", "momentum", "seed", "fine_tune", "fine_tune_lr", "clip", "keep", "keep_dense"),
    *("threads", "classes", "held_out", "samples", "size", "workers", "unroll"),
)


@dataclass(frozen=True)
class Run:
    """What is run. Recipes return one; ``with_settings`` changes what a user may change."""

    name: str
    about: str  # one sentence
    model: Callable[..., nn.Module]  # makes it at full size; called with classes=... and keep=... if they are known
    load: Callable[[Run], Data]  # reads data_dir, held_out, samples, size and workers of the run
    task: Task
    epochs: int
    batch: int
    lr: float  # before `rate` and `warmup` are applied, step by step
    rate: Rate = Cosine()
    warmup: float = 0.0  # epochs in which the learning rate rises from almost nothing
    fine_tune: int = 0  # epochs after those of growing, in which the network that was found is trained on
    fine_tune_lr: float = 0.0  # of its start; 0: that of the run
    fine_tune_rate: Rate | None = None  # None: that of the run, once more from its start
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    decays: Callable[[str, Tensor], bool] = lambda name, parameter: True  # which parameters weight_decay applies to
    clip: float = 0.0  # the largest norm of all gradients together; longer ones are shortened to it; 0: none are
    unroll: int = 0  # words of each stream in a step: then a state is carried on from step to step; 0: none is
    keep: float = 0.0  # the share that dropout keeps; 0: as the recipe's model has it
    keep_dense: float = 0.0  # the same for the full model under "dense"; 0: as `keep` says; a lasso has the higher
    pin: str = ""  # patterns on module paths whose units must stay, with commas between
    depth: bool = False  # whether blocks that keep their shape may come and go, too
    budget: Budget = Budget(params="36%")
    method: str = "default"  # as meristem.control.method_text reads it, "dense" or "direct"
    widths: str | None = None  # for "direct": the folder of the run whose final widths are trained from scratch
    seed: int = 0
    device: str = "cpu"
    network: str | None = None  # MODULE:FUNCTION that makes the model, if it is not the recipe's own
    recipe: str | None = None  # MODULE:FUNCTION that returned this, if it is a recipe of the user's own
    data_dir: str | None = None
    classes: int = 0  # of the data; 0: as the recipe's model has them
    held_out: int = 0  # training samples that are set aside for validation
    samples: int = 0  # training samples that are used; 0: all
    size: int = 0  # of input images, in pixels; 0: as the data have it
    workers: int = 0  # processes that read data, for data that are read from files as they are needed
    threads: int = 0  # of torch; 0: as many as it takes by itself
    bf16: bool = False  # autocast
    channels_last: bool = False
    compile: bool = False  # the training step, by torch.compile; again after each change of the network

    def __post_init__(self) -> None:
        check_kinds({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise MeristemError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in _NOT_NEGATIVE:
            if not 0 <= getattr(self, name) < math.inf:
                raise MeristemError(f"{name} must be a number of at least 0, got {getattr(self, name)}")
        for name, most in (("seed", 2**63), ("threads", 1024), ("workers", 1024)):
            if getattr(self, name) > most:
                raise MeristemError(f"{name} must be at most {most}, got {getattr(self, name)}")
        for name in ("keep", "keep_dense"):
            if getattr(self, name) > 1:
                raise MeristemError(f"{name} must be a share of at most 1, got {getattr(self, name)}")
        if self.momentum >= 1:
            raise MeristemError(f"momentum must be less than 1, got {self.momentum}")
        if self.nesterov and not self.momentum:
            raise MeristemError("nesterov needs a momentum, but momentum is 0")
        if self.warmup > self.epochs:
            raise MeristemError(f"the warmup of {self.warmup:g} epochs is longer than the run, which has {self.epochs}")
        if (self.fine_tune_lr or self.fine_tune_rate) and not self.fine_tune:
            raise MeristemError("fine_tune_lr and fine_tune_rate are of a fine-tuning, but fine_tune is 0 epochs")
        if self.fine_tune_lr and not self.lr:
            raise MeristemError(f"fine_tune_lr={self.fine_tune_lr:g} needs an lr that is not 0")
        if self.method not in (DENSE, DIRECT):
            named_method(self.method, besides=(DENSE, DIRECT))

    @property
    def all_epochs(self) -> int:
        """Those of growing and of fine-tuning."""
        return self.epochs + self.fine_tune

    def with_settings(self, settings: Mapping[str, Any]) -> Run:
        """The same run with other settings, given as text or as values."""
        return dataclasses.replace(self, **changed(settings))

    @property
    def settings(self) -> dict[str, Any]:
        """What a user may change, as JSON holds it; ``with_settings`` understands it."""
        given = ("name", "about", "model", "network", "recipe", "load", "task", "decays")
        held = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        held.update(budget=budget_text(self.budget), rate=str(self.rate))
        held.update(fine_tune_rate=None if self.fine_tune_rate is None else str(self.fine_tune_rate))
        return {name: value for name, value in held.items() if name not in given}


def description(run: Run) -> dict[str, Any]:
    """What run.json holds: what is run, with which software, where."""
    return {
        "name": run.name,
        "about": run.about,
        "network": run.network,
        "recipe": run.recipe,
        "settings": run.settings,
        "versions": {
            "meristem": meristem.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "platform": platform.platform(),
    }


def described_run(folder: Folder, known: Run) -> Run:
    """The run that was started in ``folder``, made from its recipe as it is ``known`` today and its own settings."""
    content = folder.described()
    if content.get("name") != known.name:
        raise MeristemError(f"{folder.path} holds a run of {content.get('name')!r}, not of {known.name!r}")
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise MeristemError(f"{folder.description} is damaged: it has no settings")
    if (network := content.get("network")) != known.network:
        wanted = f"--model {network}" if network else "no --model"
        raise MeristemError(f"the run in {folder.path} was started with {wanted}: say so again to go on with it")
    return known.with_settings(known_settings(settings))


def known_settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were written down, with those that were not known then as they are by default."""
    defaults = {field.name: field.default for field in dataclasses.fields(Run) if field.name in SETTINGS}
    plain = {name: value for name, value in defaults.items() if value is None or type(value) in _PLAIN}
    return {**plain, **written}


def finished_result(folder: Folder) -> Record | None:
    """The result of a run that is finished; None if there is none to be read: the run then makes it again."""
    try:
        result = read_json(folder.result)
    except FileError:
        return None
    return result if result.get("format") == RESULT_FORMAT else None
