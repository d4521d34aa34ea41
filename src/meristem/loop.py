"""The loop that carries out a run.

The same run on the same machine gives the same bits, also when it was killed at any moment and resumed.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.utils._pytree import tree_map

from meristem.control.budget import Budget
from meristem.control.method import Method, direct, named_methods, uniform
from meristem.cost.count import count_macs, count_params
from meristem.errors import DataError, FileError, MeristemError, TraceError
from meristem.folder import Folder, write_json
from meristem.grower import Grower
from meristem.metric import metric
from meristem.rates import warmed
from meristem.run import (
    DENSE,
    DIRECT,
    MOVABLE,
    RESULT_FORMAT,
    Data,
    Record,
    Run,
    description,
    finished_result,
    known_settings,
)
from meristem.space.outline import outline
from meristem.space.space import Space
from meristem.trace.trace import trace

Item = TypeVar("Item")
Network = Callable[..., Any]  # called with inputs, and with a state where one is carried on


class Watcher(Protocol):
    """Who is told how the run goes."""

    def start(self, run: Run, grower: Grower) -> None: ...
    def batch(self, step: int, steps: int) -> None: ...
    def epoch(self, record: Record) -> None: ...


@dataclass(frozen=True)
class Watchers:
    """Several that are told the same, one after the other."""

    all: tuple[Watcher, ...]

    def start(self, run: Run, grower: Grower) -> None:
        for watcher in self.all:
            watcher.start(run, grower)

    def batch(self, step: int, steps: int) -> None:
        for watcher in self.all:
            watcher.batch(step, steps)

    def epoch(self, record: Record) -> None:
        for watcher in self.all:
            watcher.epoch(record)


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

    def resume(self, path: Path) -> None:
        extra = self.grower.resume(path)
        try:
            self.scheduler.load_state_dict(extra["scheduler"])
            self.order.set_state(extra["order"])
            self.seconds = float(extra["seconds"])
            settings = known_settings(extra["settings"])
        except (KeyError, TypeError, ValueError, RuntimeError):
            raise FileError(f"{path} was not written by a run of meristem grow") from None
        for name, value in self.run.settings.items():
            if name not in MOVABLE and (was := settings.get(name)) != value:
                raise FileError(f"{path} was written with {name}={was}, but {name}={value} is described beside it")
        taken, steps = self.scheduler.last_epoch, self.data.steps(self.run.batch)
        if taken != self.grower.epoch * steps:  # perhaps --data names another data set
            raise FileError(
                f"the run in {path.parent} had {taken // max(1, self.grower.epoch)} steps an epoch, but the data have "
                f"{steps} now: give it the data it was started with"
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
        write_json(folder.space, outline(grower.space))
    if folder.checkpoint.exists():
        training.resume(folder.checkpoint)
    watcher.start(run, grower)
    while not grower.finished:
        started = time.perf_counter()
        train_loss = train_epoch(training, watcher)
        metrics = evaluate(run, training.data, training.model, "validation")
        record = grower.step(train_loss=train_loss, **{f"val_{name}": value for name, value in metrics.items()})
        training.seconds += time.perf_counter() - started
        training.keep(folder.checkpoint)
        watcher.epoch(record)
    grower.save(folder.model)
    result = outcome(training, evaluate(run, training.data, grower.export(), "test"))
    write_json(folder.result, result)
    return result


def train_epoch(training: Training, watcher: Watcher) -> float:
    """One pass over the training data; the mean loss."""
    run, steps, total = training.run, training.data.steps(training.run.batch), 0.0
    training.model.train()
    network = Calls(run, training.network())
    # Closed here and not when they are forgotten: an interrupt on the way would be told by Python in its own words.
    with closing(read(run, training.data.train(run.batch, training.order))) as batches:
        for step, (inputs, targets) in enumerate(batches):
            outputs = trained_forward(run, network, inputs)
            loss = run.task.loss(outputs, targets.to(run.device))
            training.optimizer.zero_grad(set_to_none=True)
            whole = loss * max(1, run.unroll)  # the words of a stream add up, as in the published settings
            whole.backward()  # type: ignore[no-untyped-call]
            if run.clip:
                nn.utils.clip_grad_norm_(training.model.parameters(), run.clip)
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
def evaluate(run: Run, data: Data, model: nn.Module, split: str) -> dict[str, float]:
    """The task's metrics on a whole split; nothing if there is no such split."""
    tally = torch.zeros(())
    if not data.has(split):
        return {}
    model.eval()
    network = Calls(run, model)
    with closing(read(run, data.evaluate(split, run.batch))) as batches:
        for inputs, targets in batches:
            tally = tally + run.task.tally(network(inputs), targets.to(run.device)).cpu()
    return run.task.metrics(tally)


class Calls:
    """Calls of a network, batch after batch.

    Where the run carries a state, each call is given the one that the last call returned, cut off from its gradients,
    and the first call none. So an epoch, and an evaluation, begins without any.
    """

    def __init__(self, run: Run, network: Network) -> None:
        self._run, self._network, self._state = run, network, None

    def __call__(self, inputs: Tensor) -> Any:
        if not self._run.unroll:
            return forward(self._run, self._network, inputs)
        returned = forward(self._run, self._network, inputs, self._state)
        outputs, state = returned  # as it was traced
        self._state = tree_map(lambda value: value.detach() if isinstance(value, Tensor) else value, state)
        return outputs


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


def read(run: Run, items: Iterable[Item]) -> Generator[Item, None, None]:
    """What the data give; their own trouble is told as the user's to mend."""
    try:
        yield from items
    except (ValueError, OSError) as error:
        raise DataError(f"{run.name}: {error}") from None


def forward(run: Run, model: Network, inputs: Tensor, *state: Any) -> Any:
    device = torch.device(run.device)
    inputs = inputs.to(device)
    if run.channels_last and inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    with torch.autocast(device.type, torch.bfloat16, enabled=run.bf16):
        return model(inputs, *state)


def trained_forward(run: Run, network: Calls, inputs: Tensor) -> Any:
    try:
        return network(inputs)
    except RuntimeError as error:
        if not run.bf16 or "primitive" not in str(error):  # of the CPU's library: it has none for this layer
            raise
        raise MeristemError(f"{run.name}: this machine cannot run the model in bf16; leave out bf16") from None
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise MeristemError(
            f"{run.name}: a norm over the batch meets one value a channel with batch={run.batch} and inputs of this "
            f"size; give a larger batch"
        ) from None


def outcome(training: Training, metrics: dict[str, float]) -> Record:
    """What the run gave, beside what is known of the full model without training it."""
    run, last = training.run, training.grower.records[-1]
    keys = (
        *("params", "macs", "params_frac", "macs_frac", "spend_macs", "spend_frac", "total_spend_frac"),
        *("peak_bytes", "widths", "blocks"),
    )
    space = training.grower.space
    return {
        "format": RESULT_FORMAT,
        "name": run.name,
        "method": run.method,
        "seed": run.seed,
        "epochs": run.epochs,
        "fine_tune": run.fine_tune,
        "budget": str(run.budget),
        "headline": run.task.headline,
        "metric": dataclasses.asdict(metric(run.task.headline)),
        "test": metrics,
        "validation": {name.removeprefix("val_"): x for name, x in last["metrics"].items() if name.startswith("val_")},
        **{key: last[key] for key in keys},
        "seconds": training.seconds,
        "full": {
            "blocks": {stage.name: stage.fixed + len(stage.blocks) for stage in space.stages},
            "params": round(count_params(space)),
            "macs": round(count_macs(space)),
            "spend_macs": last["dense_spend_macs"],
        },
    }


# --- building it --------------------------------------------------------------------------------------------------


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
        grower.ledger.other_spent = float(grown_result(run)["spend_macs"])
    return Training(run, data, model, optimizer, scheduler, torch.Generator().manual_seed(run.seed), grower)


def lr_factor(run: Run, step: int, steps: int) -> float:
    """What the learning rate is multiplied by: along one curve over growing, along a new one over fine-tuning."""
    if step < steps or not run.fine_tune:
        return warmed(run.rate, step, steps, round(run.warmup * steps / run.epochs))
    progress = (step - steps) / (run.fine_tune * steps // run.epochs)
    return (run.fine_tune_rate or run.rate).factor(progress) * (run.fine_tune_lr / run.lr if run.fine_tune_lr else 1.0)


def traced(run: Run, model: nn.Module, example: tuple[Tensor, ...]) -> Space:
    """What may grow; a state that is carried on stands second among what the model is given and what it returns."""
    pinned = [pattern for pattern in run.pin.split(",") if pattern]
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
    """Settings of torch that the outcome depends on, and the device of the run."""
    device = usable_device(run.device)
    if run.threads:
        torch.set_num_threads(run.threads)
    if device.type == "cuda":
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return device


def read_data(run: Run) -> tuple[Data, tuple[Tensor, ...], int]:
    """The data, one sample of them, and how many steps growing will have."""
    try:
        data = run.load(run)
        return data, data.example, data.steps(run.batch) * run.epochs
    except (ValueError, OSError) as error:
        raise MeristemError(f"{run.name}: {error}") from None


def made_model(run: Run, data: Data | None = None) -> nn.Module:
    """At full size, for as many classes as the run says, or else as the data have found for themselves (words)."""
    known = {
        "classes": run.classes or getattr(data, "classes", 0),
        "keep": run.keep_dense if run.method == DENSE and run.keep_dense else run.keep,
    }
    if run.network is not None:
        return run.model()
    try:
        return run.model(**{name: value for name, value in known.items() if value})
    except TypeError as error:
        name = next((name for name in known if f"'{name}'" in str(error)), None)
        if name is None:
            raise
        what = {"classes": "a fixed number of classes", "keep": "no dropout that could be set"}[name]
        raise MeristemError(f"{run.name}: its model has {what}; leave out {name}") from None


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
    return direct(grown_result(run)["widths"]) if run.method == DIRECT else named_methods()[run.method]()


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
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise MeristemError(f"the device {name!r} cannot be used here: {reason}") from None
    return device
