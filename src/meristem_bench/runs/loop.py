"""The loop that carries out a run.

The same run on the same machine gives the same bits, also when it was killed at any moment and resumed.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from meristem.cost.count import count_macs, count_params
from meristem.errors import DataError, MeristemError
from meristem.grower import Grower
from meristem.space.outline import outline
from meristem_bench.runs.folder import Folder, write_json
from meristem_bench.runs.metric import metric
from meristem_bench.runs.run import (
    RESULT_FORMAT,
    Data,
    Record,
    Run,
    description,
)
from meristem_bench.runs.training import Network, Training, build

Item = TypeVar("Item")


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


def carry_out(run: Run, folder: Folder, watcher: Watcher) -> Record:
    """Start the run in ``folder``, or go on with what lies there. Returns the result, which is also written there."""
    if not folder.checkpoint.exists():
        folder.history.unlink(missing_ok=True)  # of a run that was killed in its first epoch
    training = build(run, folder.history)
    grower = training.grower
    if not folder.description.exists():
        folder.describe(description(run))
    if not folder.space.exists():
        write_json(folder.space, outline(grower.space))
    if folder.checkpoint.exists():
        training.resume(folder.checkpoint)
    watcher.start(run, grower)
    while not grower.finished:
        started = time.perf_counter()
        try:
            train_loss = train_epoch(training, watcher)
            metrics = evaluate(run, training.data, training.model, "validation")
        except torch.OutOfMemoryError:
            raise MeristemError(
                f"the memory of {run.device} was not enough in epoch {grower.epoch + 1}; what came before is kept: go "
                f"on with --resume where there is more, or start anew with --set batch={max(1, run.batch // 2)} and "
                f"another --out"
            ) from None
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
        outputs, state = returned[0], returned[1]  # as it was traced; what comes after is of no concern here
        self._state = tree_map(lambda value: value.detach() if isinstance(value, Tensor) else value, state)
        return outputs


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
