"""The training loop: takes a run to its end.

The same run on the same machine gives the same bits, also when it was killed at any moment and resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import TypeVar

import torch
from torch import Tensor, nn

from meristem.distributed.agreement import gathered, mean_of_numbers, take_from_rank_0
from meristem.errors import DataError, MeristemError
from meristem.grower import Grower
from meristem.space.outline import outline
from meristem_bench.runs.data import Data
from meristem_bench.runs.description import description
from meristem_bench.runs.folder import Folder, write_json
from meristem_bench.runs.forecast import warning_before
from meristem_bench.runs.forward import Forward, TrainingForward
from meristem_bench.runs.observers import RunObserver
from meristem_bench.runs.processes import by_every_rank, by_rank_0, check_count, rank, shared_error
from meristem_bench.runs.result import Result, make_result
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import Training, build
from meristem_bench.runs.training_loss import TrainingLoss
from meristem_bench.runs.transfer import moved

Item = TypeVar("Item")

_HIGH_RATE = 0.8  # of the first learning rate, at which what is new still learns quickly


def run_to_end(run: Run, folder: Folder, observer: RunObserver) -> Result:
    """Start the run in ``folder``, or go on with what lies there. Returns the result, which is also written there."""
    check_count(run.machine.processes)
    resumes = by_rank_0(folder.checkpoint.exists)
    if not resumes and not rank():
        folder.history.unlink(missing_ok=True)  # of a run that was killed in its first epoch
    training = build(run, None if rank() else folder.history)
    described, run, grower = run, training.run, training.grower
    by_rank_0(lambda: _write_start(folder, described, grower))
    if resumes:
        by_every_rank(lambda: training.resume(folder.checkpoint))
    observer.start(run, grower)
    for note in _notes(training) if not grower.epoch else ():
        observer.note(note)
    while not grower.finished:
        started = time.perf_counter()
        try:
            train_loss = train_epoch(training, observer)
            with training.averaged():
                metrics = evaluate(run, training.data, training.model, "validation")
        except torch.OutOfMemoryError:
            raise MeristemError(
                f"the memory of {run.machine.device} was not enough in epoch {grower.epoch + 1}; what came before is "
                f"kept: go on with --resume where there is more, or start anew with --set "
                f"batch={max(1, run.batch // 2)} and another --out"
            ) from None
        record = grower.step(train_loss=train_loss, **{f"val_{name}": value for name, value in metrics.items()})
        training.seconds += time.perf_counter() - started
        training.save(folder.checkpoint)
        observer.epoch(record)
    with training.averaged():
        by_rank_0(lambda: grower.save(folder.model))
        test_metrics = evaluate(run, training.data, grower.export(), "test")
    result = make_result(described, grower, training.seconds, test_metrics)
    by_rank_0(lambda: write_json(folder.result, result))
    return result


def _write_start(folder: Folder, run: Run, grower: Grower) -> None:
    """Write what is known of a run before its first step."""
    if not folder.description.exists():
        folder.write_description(description(run))
    if not folder.space.exists():
        write_json(folder.space, outline(grower.space))


def _notes(training: Training) -> list[str]:
    """What the user of a new run should know before its first step."""
    run, data = training.run, training.data
    warning = warning_before(run, training.grower.space, data.steps(run.batch))
    return [*training.notes, *(note for note in (warning, _rate_note(training)) if note is not None)]


def _rate_note(training: Training) -> str | None:
    """That the network still grows while the learning rate falls, where it does."""
    hint, schedule = training.grower.rate_hint, training.run.optimizer.schedule
    if not hint.hold_until or schedule.factor(hint.hold_until) > _HIGH_RATE:
        return None
    return (
        f"The network grows until {hint.hold_until:.0%} of the run, where the learning rate has fallen to "
        f"{schedule.factor(hint.hold_until):.0%}: --set rate={hint} holds it until then"
    )


def train_epoch(training: Training, observer: RunObserver) -> float:
    """Make one pass over the training data; returns the mean loss."""
    run, steps, losses = training.run, training.data.steps(training.run.batch), list[Tensor]()
    device, loss_of = torch.device(run.machine.device), TrainingLoss(run, training.order)
    training.model.train()
    network = TrainingForward(run, training.network())
    # Closed here and not when they are forgotten: an interrupt on the way would be told by Python in its own words.
    with closing(_read(run, training.data.train(run.batch, training.order))) as batches:
        for step, (inputs, targets) in enumerate(batches):
            inputs = network.on_device(loss_of.mix(inputs))  # once: a teacher is given them, too
            outputs = network(inputs)
            loss = training.grower.taught(loss_of(outputs, moved(targets, device)), outputs, inputs)
            training.optimizer.zero_grad(set_to_none=True)
            summed = loss * max(1, run.data.unroll)  # the words of a stream add up, as in the published settings
            summed.backward()  # type: ignore[no-untyped-call]
            if run.optimizer.clip:
                nn.utils.clip_grad_norm_(training.model.parameters(), run.optimizer.clip)
            training.step()
            losses.append(loss.detach())  # looked at when the epoch is over: a GPU need not wait for the host
            observer.batch(step + 1, steps)
    total = sum(loss.item() for loss in losses)
    (total,) = mean_of_numbers([total], device)
    take_from_rank_0(training.buffers)  # running statistics, of which each rank has its own
    if not math.isfinite(total):
        raise shared_error(
            MeristemError(
                f"the loss became {total} in epoch {training.grower.epoch + 1}; lower the learning rate, e.g. --set "
                f"lr={run.optimizer.lr / 4:g} with another --out"
            )
        )
    return total / steps


@torch.no_grad()
def evaluate(run: Run, data: Data, model: nn.Module, split: str) -> dict[str, float]:
    """The task's metrics on a whole split; empty if there is no such split."""
    tally = torch.zeros(())
    if not data.has(split):
        return {}
    model.eval()
    network, device = Forward(run, model), torch.device(run.machine.device)
    with closing(_read(run, data.evaluate(split, run.batch))) as batches:
        for inputs, targets in batches:
            tally = tally + run.task.tally(network(inputs), moved(targets, device)).cpu()
    return run.task.metrics(sum(gathered(tally), torch.zeros(())))


def _read(run: Run, batches: Iterable[Item]) -> Generator[Item, None, None]:
    """The same batches; what goes wrong with the data becomes an error for the user."""
    try:
        yield from batches
    except (ValueError, OSError) as error:
        raise DataError(f"{run.name}: {error}") from None
