"""The pieces of a run, made from its settings and joined: data, model, optimizer, learning rate, grower."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim

from meristem.control.budget import Budget
from meristem.control.method import Method, direct, uniform
from meristem.control.method_text import named_method
from meristem.errors import FileError, MeristemError, TraceError
from meristem.grower import Grower
from meristem.space.space import Space
from meristem.tracing.trace import trace
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.lr_schedule import warmed
from meristem_bench.runs.memory import keep_freed_memory
from meristem_bench.runs.run import (
    DENSE,
    DIRECT,
    MOVABLE,
    Data,
    Record,
    Run,
    finished_result,
    known_settings,
)

Network = Callable[..., Any]  # called with inputs, and with a state where one is carried on


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
    _compiled: tuple[Any, Network] | None = None  # and what it was compiled for

    def network(self) -> Network:
        """What is trained in the coming epoch: the model as it is now."""
        if not self.run.compile:
            return self.model
        state = (self.grower.widths, self.grower.growing)  # gates are compiled in
        if self._compiled is None or self._compiled[0] != state:
            torch.compiler.reset()  # forgets the sizes it had before; otherwise torch soon gives up compiling
            self._compiled = (state, compilable(torch.compile(self.model, dynamic=False)))
        return self._compiled[1]

    def keep(self, path: Path) -> None:
        """Everything the run needs to go on, and its settings: a folder whose description was edited is found out."""
        self.grower.checkpoint(
            path,
            scheduler=self.scheduler.state_dict(),
            order=self.order.get_state(),
            seconds=self.seconds,
            settings=self.run.settings,
        )

    def resume(self, path: Path, may_differ: Collection[str] = ()) -> None:
        """Go on from what was kept; ``may_differ`` are settings that need not be those of the run."""
        extra = self.grower.resume(path)
        try:
            self.scheduler.load_state_dict(extra["scheduler"])
            self.order.set_state(extra["order"])
            self.seconds = float(extra["seconds"])
            settings = known_settings(extra["settings"])
        except (KeyError, TypeError, ValueError, RuntimeError):
            raise FileError(f"{path} was not written by a run of meristem grow") from None
        for name, value in self.run.settings.items():
            if name not in (*MOVABLE, *may_differ) and (was := settings.get(name)) != value:
                raise FileError(f"{path} was written with {name}={was}, but {name}={value} is described beside it")
        taken, steps = self.scheduler.last_epoch, self.data.steps(self.run.batch)
        if taken != self.grower.epoch * steps:  # perhaps --data names another data set
            raise FileError(
                f"the run in {path.parent} had {taken // max(1, self.grower.epoch)} steps an epoch, but the data have "
                f"{steps} now: give it the data it was started with"
            )


def build(run: Run, history: Path | None) -> Training:
    """Make all pieces of a run from its seed. Nothing is written but an empty history."""
    device = prepare(run)
    data, example, steps = read_data(run)
    torch.manual_seed(run.seed)
    np.random.seed(run.seed % 2**32)
    random.seed(run.seed)
    model = made_model(run, data).to(device)
    if run.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = optim.SGD(parameter_groups(run, model), run.lr, run.momentum, nesterov=run.nesterov)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(run, step, steps))
    given = tuple(value.to(device) for value in example)
    grower = Grower(
        model,
        optimizer,
        given,
        space=traced(run, model, given),
        budget=Budget(params="100%") if run.method == DENSE else run.budget,
        epochs=run.epochs,
        fine_tune=run.fine_tune,
        method=chosen_method(run),
        seed=run.seed,
        batch_size=run.batch,
        history=history,
    )
    if run.method == DIRECT:
        grower.ledger = grower.ledger.with_other_runs(float(grown_result(run)["spend_macs"]))
    return Training(run, data, model, optimizer, scheduler, torch.Generator().manual_seed(run.seed), grower)


def lr_factor(run: Run, step: int, steps: int) -> float:
    """What the learning rate is multiplied by: along one curve over growing, along a new one over fine-tuning."""
    if step < steps or not run.fine_tune:
        return warmed(run.rate, step, steps, round(run.warmup * steps / run.epochs))
    progress = (step - steps) / (run.fine_tune * steps // run.epochs)
    return (run.fine_tune_rate or run.rate).factor(progress) * (run.fine_tune_lr / run.lr if run.fine_tune_lr else 1.0)


def traced(run: Run, model: nn.Module, example: tuple[Tensor, ...]) -> Space:
    """What may grow; a state that is carried on stands second among what the model is given and what it returns."""
    pinned = [pattern.strip() for pattern in run.pin.split(",") if pattern.strip()]
    try:
        return trace(model, example, pin=pinned, depth=run.depth, carried=1 if run.unroll else None)
    except TraceError as error:
        if "carried" not in str(error):
            raise
        raise MeristemError(
            f"{run.name}: with unroll the model must be called with inputs and a state and return outputs and the "
            f"state to go on with; leave out unroll"
        ) from None


def prepare(run: Run) -> torch.device:
    """Settings of the process that the outcome or the time depends on, and the device of the run."""
    device = usable_device(run.device)
    if device.type == "cpu":
        keep_freed_memory()
    if run.threads:
        torch.set_num_threads(run.threads)
    if device.type == "cuda":
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return device


def read_data(run: Run) -> tuple[Data, tuple[Tensor, ...], int]:
    """The data, one sample of them, and how many steps growing will have."""
    try:
        data = run.load(run)
        if data is None:
            raise ValueError(
                "its load returned nothing; it must return the data, e.g. meristem_bench.data.arrays.Arrays"
            )
        return data, data.example, data.steps(run.batch) * run.epochs
    except (ValueError, OSError) as error:
        raise MeristemError(f"{run.name}: {error}") from None


def _kept(run: Run) -> float:
    """The share that dropout keeps. A lasso holds a network back as dropout does: under it the weaker of the two."""
    if run.method == DENSE:
        return run.keep_dense or run.keep
    lasso = run.method != DIRECT and named_method(run.method).lasso
    return max(run.keep, run.keep_dense) if lasso else run.keep


def made_model(run: Run, data: Data | None = None) -> nn.Module:
    """At full size, for as many classes as the run says, or else as the data have found for themselves (words)."""
    known = {
        "classes": run.classes or getattr(data, "classes", 0),
        "keep": _kept(run),
    }
    if run.network is not None:
        return run.model()
    try:
        model = run.model(**{name: value for name, value in known.items() if value})
    except TypeError as error:
        name = next((name for name in known if f"'{name}'" in str(error)), None)
        if name is None:
            raise
        what = {"classes": "a fixed number of classes", "keep": "no dropout that could be set"}[name]
        raise MeristemError(f"{run.name}: its model has {what}; leave out {name}") from None
    if not isinstance(model, nn.Module):
        raise MeristemError(f"{run.name}: its model function returned {type(model).__name__}, expected an nn.Module")
    return model


def parameter_groups(run: Run, model: nn.Module) -> list[dict[str, Any]]:
    """One group, or two where some parameters are not decayed."""
    decayed = {name: run.decays(name, parameter) for name, parameter in model.named_parameters()}
    groups = [
        {"params": [p for name, p in model.named_parameters() if decayed[name] is kind], "weight_decay": decay}
        for kind, decay in ((True, run.weight_decay), (False, 0.0))
    ]
    return [group for group in groups if group["params"]]


def chosen_method(run: Run) -> Method:
    if run.method == DENSE:  # a network of fixed size whose size is all of it
        return dataclasses.replace(uniform(), native_scale=False)
    return direct(grown_result(run)["widths"]) if run.method == DIRECT else named_method(run.method)


def grown_result(run: Run) -> Record:
    """What came out of the run whose network is trained from scratch."""
    if run.widths is None:
        raise MeristemError("the method direct needs the folder of a finished run: --set widths=runs/digits-seed0")
    result = finished_result(Folder(Path(run.widths)))
    if result is None or not isinstance(result.get("widths"), dict):
        raise MeristemError(f"{run.widths} is not the folder of a finished run, so it has no widths to train")
    return result


def usable_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise MeristemError(f"the device {name!r} cannot be used here: {reason}") from None
    return device


def compilable(model: Network) -> Network:
    """A compiled model whose compiler's trouble (there may be none on this machine) is told in one sentence."""

    def call(*given: Any) -> Any:
        try:
            return model(*given)
        except Exception as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            reason = " ".join(str(error).split("\n")[:2]).strip()
            raise MeristemError(f"torch cannot compile this model here ({reason}); leave out compile") from None

    return call
