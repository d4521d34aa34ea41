"""The pieces of a run, made from its settings and joined: data, model, optimizer, learning rate, grower."""

from __future__ import annotations

import random
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from meristem.control.method import Method
from meristem.distributed.agreement import gathered
from meristem.errors import FileError, MeristemError, TraceError
from meristem.grower import Grower
from meristem.grower_checks import samples_of
from meristem.io.checkpoint import random_state, set_random_state
from meristem.space.space import Space
from meristem.tracing.trace import trace
from meristem_bench.runs.averaged_weights import AveragedWeights
from meristem_bench.runs.data import Data
from meristem_bench.runs.description import may_change, with_defaults
from meristem_bench.runs.equal_cost import at_equal_cost
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.held_out_loss import HeldOutLoss
from meristem_bench.runs.lr_schedule import factor_with_warmup
from meristem_bench.runs.machine import Network, compiled
from meristem_bench.runs.pretrained import load_pretrained
from meristem_bench.runs.processes import by_every_rank, rank, rank_count
from meristem_bench.runs.result import Result, finished_result
from meristem_bench.runs.run import Run
from meristem_bench.runs.several_optimizers import AnyOptimizer, AnyScheduler, SeveralOptimizers, scheduled
from meristem_bench.runs.shared_data import shared_data, sharing_notes
from meristem_bench.runs.short_training import ShortTraining


@dataclass
class Training:
    """The pieces of a run, made and joined."""

    run: Run
    data: Data
    model: nn.Module
    optimizer: AnyOptimizer
    scheduler: AnyScheduler
    order: torch.Generator  # of the training samples and their augmentation
    grower: Grower
    notes: tuple[str, ...] = ()  # for the user, about how it was made
    seconds: float = 0.0  # of training so far, over all the times the run was resumed
    averages: AveragedWeights | None = None
    wrapper: nn.Module | None = None  # around the model, where several processes train it
    _compiled: tuple[Any, Network] | None = None  # and what it was compiled for

    def network(self) -> Network:
        """What is trained in the coming epoch: the model as it is now."""
        if not self.run.machine.compile:
            return self.model if self.wrapper is None else self.wrapper
        state = (self.grower.widths, self.grower.growing)  # gates are compiled in
        if self._compiled is None or self._compiled[0] != state:
            self._compiled = (state, compiled(self.model))
        return self._compiled[1]

    def step(self) -> None:
        """Update the weights by their gradients, and what goes with them."""
        self.optimizer.step()
        self.scheduler.step()
        if self.averages is not None:
            self.averages.update(self.model, self.scheduler.last_epoch)

    @property
    def buffers(self) -> list[Tensor]:
        """Those of the model, and their averages."""
        return [*self.model.buffers(), *(() if self.averages is None else self.averages.network.buffers())]

    def averaged(self) -> AbstractContextManager[None]:
        """The model computes with what is evaluated and kept: its averaged weights, where the run has some."""
        return nullcontext() if self.averages is None else self.averages.in_place_of(self.model)

    def save(self, path: Path) -> None:
        """Write all the run needs to go on, and its settings: that its description was edited must not go unnoticed.

        All ranks call it, and rank 0 writes.
        """
        random_of_ranks = gathered(random_state())
        if rank():
            return
        self.grower.checkpoint(
            path,
            scheduler=self.scheduler.state_dict(),
            order=self.order.get_state(),
            seconds=self.seconds,
            settings=self.run.settings,
            random_of_ranks=random_of_ranks,
        )

    def resume(self, path: Path, may_differ: Collection[str] = ()) -> None:
        """Go on from what was saved; ``may_differ`` are settings that need not be those of the run."""
        extra = self.grower.resume(path)
        try:
            self.scheduler.load_state_dict(extra["scheduler"])
            self.order.set_state(extra["order"])
            self.seconds = float(extra["seconds"])
            saved = with_defaults(extra["settings"])
        except (KeyError, TypeError, ValueError, RuntimeError):
            raise FileError(f"{path} was not written by a run of meristem grow") from None
        random_of_ranks = extra.get("random_of_ranks", [])
        if rank() < len(random_of_ranks):
            set_random_state(random_of_ranks[rank()])
        for name, value in self.run.settings.items():
            if name not in may_differ and not may_change(name, was := saved.get(name), value):
                raise FileError(f"{path} was written with {name}={was}, but {name}={value} is described beside it")
        taken, steps = self.scheduler.last_epoch, self.data.steps(self.run.batch)
        if taken != self.grower.epoch * steps:  # perhaps --data names another data set
            raise FileError(
                f"the run in {path.parent} had {taken // max(1, self.grower.epoch)} steps per epoch, but the data have "
                f"{steps} now: give it the data it was started with"
            )


def build(run: Run, history: Path | None) -> Training:
    """Make all pieces of a run from its seed. Nothing is written but an empty history.

    The run of the training is the one given, with its epochs set where it shall cost what another has cost.
    """
    device = run.machine.prepare()
    data, model, notes = by_every_rank(lambda: _data_and_model(run, device))
    example, epoch_steps = tuple(value.to(device) for value in data.example), data.steps(run.batch)
    optimizer = run.optimizer.build(model)
    space, method = trace_model(run, model, example), method_of(run)
    wrapper = DistributedDataParallel(model) if rank_count() > 1 else None
    if rank():
        torch.manual_seed(run.seed + rank())  # each drops other units of its own samples
    if run.growth.cost_of is not None:
        epoch_samples = epoch_steps * samples_of(example, run.batch).examples_per_step
        run = at_equal_cost(run, method, space, epoch_samples)
    steps = epoch_steps * run.epochs
    scheduler = scheduled(optimizer, lambda step: lr_factor(run, step, steps))
    averages = AveragedWeights(model, run.smoothing.ema) if run.smoothing.ema else None
    grower = Grower(
        model if wrapper is None else wrapper,
        optimizer.all if isinstance(optimizer, SeveralOptimizers) else optimizer,
        example,
        space=space,
        budget=run.growth.budget,
        epochs=run.epochs,
        fine_tune=run.fine_tuning.epochs,
        method=method,
        seed=run.seed,
        batch_size=run.batch,
        steps_per_epoch=epoch_steps,
        history=history,
        held_out_loss=HeldOutLoss(run, data) if method.needs_held_out else None,
        short_training=ShortTraining(run, data) if method.tries_out else None,
    )
    if run.growth.policies.needs_widths:
        grower.add_other_cost(float(retrained_result(run)["spend_macs"]))
    if averages is not None:
        grower.follow(averages.network)
    order = torch.Generator().manual_seed(run.seed)
    pieces = run, data, model, optimizer, scheduler, order, grower, notes
    return Training(*pieces, averages=averages, wrapper=wrapper)


def _data_and_model(run: Run, device: torch.device) -> tuple[Data, nn.Module, tuple[str, ...]]:
    """What this rank reads, the full-size model, and what there is to say about it."""
    data = shared_data(load_data(run), run.batch, rank(), rank_count())
    torch.manual_seed(run.seed)
    np.random.seed(run.seed % 2**32)
    random.seed(run.seed)
    model = build_model(run, data)
    notes = () if run.pretrained is None else (load_pretrained(model, run.pretrained),)
    model.to(device)
    if run.machine.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return data, model, (*notes, *sharing_notes(run, model))


def lr_factor(run: Run, step: int, steps: int) -> float:
    """What the learning rate is multiplied by: along one curve over growing, along a new one over fine-tuning."""
    growing, tuning = run.optimizer, run.fine_tuning
    if step < steps or not tuning.epochs:
        return factor_with_warmup(growing.schedule, step, steps, round(growing.warmup * steps / run.epochs))
    progress = (step - steps) / (tuning.epochs * steps // run.epochs)
    return (tuning.schedule or growing.schedule).factor(progress) * (tuning.lr / growing.lr if tuning.lr else 1.0)


def trace_model(run: Run, model: nn.Module, example: tuple[Tensor, ...]) -> Space:
    """What may grow; a state that is carried on stands second among what the model is given and what it returns."""
    carried = 1 if run.data.unroll else None
    try:
        return trace(model, example, pin=run.growth.pinned, depth=run.growth.depth, carried=carried)
    except TraceError as error:
        if "carried" not in str(error):
            raise
        raise MeristemError(
            f"{run.name}: with unroll the model must be called with inputs and a state and return outputs and the "
            f"state to go on with; leave out unroll"
        ) from None


def load_data(run: Run) -> Data:
    """The data; refuses those that are not there, or have no sample or too few for a step."""
    try:
        data = run.load(run)
        if data is None:
            raise ValueError(
                "its load returned nothing; it must return the data, e.g. meristem_bench.data.arrays.Arrays"
            )
        _ = data.example, data.steps(run.batch)
        return data
    except (ValueError, OSError) as error:
        raise MeristemError(f"{run.name}: {error}") from None


def build_model(run: Run, data: Data | None = None) -> nn.Module:
    """The model at full size, for as many classes as the run says, or else as the data have (words)."""
    if run.network is not None:
        return run.model()
    arguments = {
        "classes": run.data.classes or getattr(data, "classes", 0),
        "keep": run.dropout.kept_share(run.growth),
        "context": run.data.context,
    }
    try:
        model = run.model(**{name: value for name, value in arguments.items() if value})
    except TypeError as error:
        name = next((name for name in arguments if f"'{name}'" in str(error)), None)
        if name is None:
            raise
        what = {
            "classes": "a fixed number of classes",
            "keep": "no dropout that could be set",
            "context": "no context that could be set",
        }[name]
        raise MeristemError(f"{run.name}: its model has {what}; leave out {name}") from None
    if not isinstance(model, nn.Module):
        raise MeristemError(f"{run.name}: its model function returned {type(model).__name__}, expected an nn.Module")
    return model


def method_of(run: Run) -> Method:
    """The method of the run, with widths to train if it needs some."""
    method = run.growth.policies
    return method.with_widths(retrained_result(run)["widths"]) if method.needs_widths else method


def retrained_result(run: Run) -> Result:
    """The result of the run whose network is trained from scratch."""
    widths = run.growth.widths
    if widths is None:
        raise MeristemError(
            f"the method {run.growth.method} needs the folder of a finished run: --set widths=runs/digits-seed0"
        )
    result = finished_result(Folder(Path(widths)))
    if result is None or not isinstance(result.get("widths"), dict):
        raise MeristemError(f"{widths} is not the folder of a finished run, so it has no widths to train")
    return result
