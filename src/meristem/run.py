"""A run: everything that decides its outcome as one frozen object, and the loop that carries it out.

The same run on the same machine gives the same bits, also when it was killed at any moment and resumed.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn, optim

import meristem
from meristem.control.budget import Budget
from meristem.control.method import Method, direct, methods, uniform
from meristem.errors import FileError, MeristemError
from meristem.folder import Folder, read_json, write_json
from meristem.grower import Grower
from meristem.settings import budget_text, changed, nearest
from meristem.task import Task

Record = dict[str, Any]
_RESULT = "meristem-result-1"
DENSE = "dense"  # the method that trains the full model as it is
DIRECT = "direct"  # the method that trains the network another run has grown, from scratch


class Data(Protocol):
    """Batches of inputs and targets. Errors of the data's own are ValueErrors."""

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


@dataclass(frozen=True)
class Run:
    """What is run. Recipes return one; ``with_settings`` changes what a user may change."""

    name: str
    about: str  # one sentence
    model: Callable[[], nn.Module]  # at full size
    load: Callable[[str | None], Data]  # given data_dir
    task: Task
    epochs: int
    batch: int
    lr: float  # at the start; it falls along half a cosine to 0, step by step
    momentum: float = 0.9
    weight_decay: float = 0.0
    budget: Budget = Budget(params="36%")
    method: str = "default"  # a name of meristem.methods(), "dense" or "direct"
    widths: str | None = None  # for "direct": the folder of the run whose final widths are trained from scratch
    seed: int = 0
    device: str = "cpu"
    data_dir: str | None = None
    threads: int = 0  # of torch; 0: as many as it takes by itself
    bf16: bool = False  # autocast
    channels_last: bool = False
    compile: bool = False  # the training step, by torch.compile; again after each change of the network

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise MeristemError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "weight_decay", "momentum", "seed", "threads"):
            if not 0 <= getattr(self, name) < math.inf:
                raise MeristemError(f"{name} must be a number of at least 0, got {getattr(self, name)}")
        for name, most in (("seed", 2**63), ("threads", 1024)):
            if getattr(self, name) > most:
                raise MeristemError(f"{name} must be at most {most}, got {getattr(self, name)}")
        if self.momentum >= 1:
            raise MeristemError(f"momentum must be less than 1, got {self.momentum}")
        if self.method not in (known := [*methods(), DENSE, DIRECT]):
            raise MeristemError(f"there is no method {self.method!r}; {nearest(self.method, known)}")

    def with_settings(self, settings: Mapping[str, Any]) -> Run:
        """The same run with other settings, given as text or as values."""
        return dataclasses.replace(self, **changed(settings))

    @property
    def settings(self) -> dict[str, Any]:
        """What a user may change, as JSON holds it; ``with_settings`` understands it."""
        functions = ("name", "about", "model", "load", "task")
        held = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        held["budget"] = budget_text(self.budget)
        return {name: value for name, value in held.items() if name not in functions}


class Watcher(Protocol):
    """Who is told how the run goes."""

    def start(self, run: Run, grower: Grower) -> None: ...
    def batch(self, step: int, steps: int) -> None: ...
    def epoch(self, record: Record) -> None: ...


@dataclass
class Training:
    """The pieces of a run, made and joined."""

    run: Run
    data: Data
    model: nn.Module
    optimizer: optim.Optimizer
    scheduler: optim.lr_scheduler.LRScheduler
    order: torch.Generator  # of the training samples and their augmentation
    grower: Grower
    seconds: float = 0.0  # of training so far, over all the times the run was resumed

    def network(self) -> Callable[[Tensor], Any]:
        """What is trained in the coming epoch: the model as it is now."""
        if not self.run.compile:
            return self.model
        torch.compiler.reset()  # forgets the sizes it had before; otherwise torch soon gives up compiling
        compiled: Callable[[Tensor], Any] = torch.compile(self.model, dynamic=False)
        return compiled

    def keep(self, path: Path) -> None:
        """Everything the run needs to go on, and its settings: a folder whose description was edited is found out."""
        self.grower.checkpoint(
            path,
            scheduler=self.scheduler.state_dict(),
            order=self.order.get_state(),
            seconds=self.seconds,
            settings=self.run.settings,
        )

    def resume(self, path: Path) -> None:
        extra = self.grower.resume(path)
        try:
            self.scheduler.load_state_dict(extra["scheduler"])
            self.order.set_state(extra["order"])
            self.seconds = float(extra["seconds"])
            settings = dict(extra["settings"])
        except (KeyError, TypeError, ValueError, RuntimeError):
            raise FileError(f"{path} was not written by a run of meristem grow") from None
        for name, value in self.run.settings.items():
            if name != "data_dir" and settings.get(name) != value:
                raise FileError(
                    f"{path} was written with {name}={settings.get(name)}, but {name}={value} is described beside it"
                )


# --- the loop -----------------------------------------------------------------------------------------------------


def carry_out(run: Run, folder: Folder, watcher: Watcher) -> Record:
    """Start the run in ``folder``, or go on with what lies there. Returns the result, which is also written there."""
    if not folder.checkpoint.exists():
        folder.history.unlink(missing_ok=True)  # of a run that was killed in its first epoch
    training = build(run, folder.history)
    grower = training.grower
    if not folder.description.exists():
        folder.describe(description(run))
    if folder.checkpoint.exists():
        training.resume(folder.checkpoint)
    watcher.start(run, grower)
    while grower.epoch < run.epochs:
        started = time.perf_counter()
        train_loss = train_epoch(training, watcher)
        metrics = evaluate(training, training.model, "validation")
        record = grower.step(train_loss=train_loss, **{f"val_{name}": value for name, value in metrics.items()})
        training.seconds += time.perf_counter() - started
        training.keep(folder.checkpoint)
        watcher.epoch(record)
    grower.save(folder.model)
    result = outcome(training, evaluate(training, grower.export(), "test"))
    write_json(folder.result, result)
    return result


def train_epoch(training: Training, watcher: Watcher) -> float:
    """One pass over the training data; the mean loss."""
    run, steps, total = training.run, training.data.steps(training.run.batch), 0.0
    training.model.train()
    network = training.network()
    for step, (inputs, targets) in enumerate(training.data.train(run.batch, training.order)):
        outputs = forward(run, network, inputs)
        loss = run.task.loss(outputs, targets.to(run.device))
        training.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        training.optimizer.step()
        training.scheduler.step()
        total += loss.item()
        watcher.batch(step + 1, steps)
    if not math.isfinite(total):
        raise MeristemError(
            f"the loss became {total} in epoch {training.grower.epoch + 1}; lower the learning rate, e.g. --set "
            f"lr={run.lr / 4:g} with another --out"
        )
    return total / steps


@torch.no_grad()
def evaluate(training: Training, model: nn.Module, split: str) -> dict[str, float]:
    """The task's metrics on a whole split."""
    run, tally = training.run, torch.zeros(())
    if not training.data.has(split):
        return {}
    model.eval()
    for inputs, targets in training.data.evaluate(split, 4 * run.batch):
        tally = tally + run.task.tally(forward(run, model, inputs), targets.to(run.device)).cpu()
    return run.task.metrics(tally)


def forward(run: Run, model: Callable[[Tensor], Any], inputs: Tensor) -> Any:
    device = torch.device(run.device)
    inputs = inputs.to(device)
    if run.channels_last and inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    with torch.autocast(device.type, torch.bfloat16, enabled=run.bf16):
        return model(inputs)


def outcome(training: Training, metrics: dict[str, float]) -> Record:
    """What the run gave, beside what is known of the full model without training it."""
    run, last = training.run, training.grower.records[-1]
    keys = ("params", "macs", "params_frac", "macs_frac", "spend_macs", "spend_frac", "peak_bytes", "widths")
    space = training.grower.space
    return {
        "format": _RESULT,
        "name": run.name,
        "method": run.method,
        "seed": run.seed,
        "epochs": run.epochs,
        "budget": str(run.budget),
        "headline": run.task.headline,
        "test": metrics,
        "validation": {name.removeprefix("val_"): x for name, x in last["metrics"].items() if name.startswith("val_")},
        **{key: last[key] for key in keys},
        "seconds": training.seconds,
        "full": {
            "params": round(meristem.count_params(space)),
            "macs": round(meristem.count_macs(space)),
            "spend_macs": last["dense_spend_macs"],
        },
    }


# --- building it --------------------------------------------------------------------------------------------------


def build(run: Run, history: Path | None) -> Training:
    """Make all pieces of a run from its seed. Nothing is written but an empty history."""
    device = usable_device(run.device)
    if run.threads:
        torch.set_num_threads(run.threads)
    if device.type == "cuda":
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        data = run.load(run.data_dir)
        steps = data.steps(run.batch) * run.epochs
    except (ValueError, OSError) as error:
        raise MeristemError(f"{run.name}: {error}") from None
    torch.manual_seed(run.seed)
    np.random.seed(run.seed % 2**32)
    random.seed(run.seed)
    model = run.model().to(device)
    if run.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = optim.SGD(model.parameters(), run.lr, run.momentum, weight_decay=run.weight_decay)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    example = tuple(value.to(device) for value in data.example)
    grower = Grower(
        model,
        optimizer,
        example,
        budget=Budget(params="100%") if run.method == DENSE else run.budget,
        epochs=run.epochs,
        method=chosen_method(run),
        seed=run.seed,
        batch_size=run.batch,
        history=history,
    )
    return Training(run, data, model, optimizer, scheduler, torch.Generator().manual_seed(run.seed), grower)


def chosen_method(run: Run) -> Method:
    if run.method == DENSE:  # a network of fixed size whose size is all of it
        return dataclasses.replace(uniform(), native_scale=False)
    if run.method != DIRECT:
        return methods()[run.method]()
    if run.widths is None:
        raise MeristemError("the method direct needs the folder of a finished run: --set widths=runs/digits-seed0")
    result = finished_result(Folder(Path(run.widths)))
    if result is None or not isinstance(result.get("widths"), dict):
        raise MeristemError(f"{run.widths} is not the folder of a finished run, so it has no widths to train")
    return direct(result["widths"])


def usable_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise MeristemError(f"the device {name!r} cannot be used here: {reason}") from None
    return device


def description(run: Run) -> dict[str, Any]:
    """What run.json holds: what is run, with which software, where."""
    return {
        "name": run.name,
        "about": run.about,
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
    return known.with_settings(settings)


def finished_result(folder: Folder) -> Record | None:
    """The result of a run that is finished; None if there is none to be read: the run then makes it again."""
    try:
        result = read_json(folder.result)
    except FileError:
        return None
    return result if result.get("format") == _RESULT else None
