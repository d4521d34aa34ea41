"""TensorBoard: everything the records of a run hold, as graphs that are written while it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meristem.errors import MeristemError
from meristem.grower import Grower
from meristem.history import Record
from meristem.space.space import Space
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import run_to_end
from meristem_bench.runs.observers import RunObserver, RunObservers
from meristem_bench.runs.result import Result, finished_result
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import build

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# The tags of a record's values; those that are not listed here stand under run/.
_TAGS = {
    "params": "cost/params",
    "macs": "cost/macs",
    "params_frac": "cost/params_frac",
    "macs_frac": "cost/macs_frac",
    "spend_macs": "spend/macs",
    "dense_spend_macs": "spend/dense_macs",
    "spend_frac": "spend/frac",
    "total_spend_frac": "spend/total_frac",
    "spend_by_stage": "spend/stages/{}",
    "grown": "structure/grown",
    "restored": "structure/restored",
    "pruned": "structure/pruned",
    "frozen": "structure/frozen",
    "metrics": "metrics/{}",
    "planned": "cost/{}_planned",
    "widths": "width/{}",
    "blocks": "blocks/{}",
    "temperature": "temperature/{}",
    "scores": "scores/{}",
}


class TensorBoardWriter:
    """Writes a run's records to event files in ``folder``, as an observer of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None
        self._space: Space | None = None
        self._budget: dict[str, float] = {}

    def start(self, run: Run, grower: Grower) -> None:
        """Write all records so far anew: the graphs then hold what the run knows, whatever a killed one had written.

        Event files that lie there are emptied and not removed: a TensorBoard that is reading one would wait for it.
        ``purge_step`` makes it forget what it has read.
        """
        from torch.utils.tensorboard import SummaryWriter

        for events in self._folder.glob("events.out.tfevents.*"):
            events.write_bytes(b"")
        self._writer = SummaryWriter(str(self._folder), purge_step=0)
        self._space, self._budget = grower.space, budget_scalars(grower)
        moment = time.time() - sum(record["seconds"] for record in grower.records)
        for record in grower.records:
            moment += record["seconds"]
            self._write(record, moment)
        self._writer.flush()

    def note(self, text: str) -> None:
        """Write nothing: it is not of an epoch."""

    def batch(self, step: int, steps: int) -> None:
        """Write nothing: graphs have a point per epoch."""

    def epoch(self, record: Record) -> None:
        self._write(record, time.time())
        assert self._writer is not None
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write(self, record: Record, moment: float) -> None:
        assert self._writer is not None
        assert self._space is not None
        points = {**scalars(record, self._space), **self._budget}
        for tag, value in points.items():
            self._writer.add_scalar(tag, value, record["epoch"], moment)


def run_with_tensorboard(run: Run, folder: Folder, observer: RunObserver) -> Result:
    """`run_to_end` that also writes graphs. A finished run is not run again, but its graphs are written."""
    with closing(TensorBoardWriter(folder.graphs)) as writer:
        result = finished_result(folder)
        if result is None:
            return run_to_end(run, folder, RunObservers((writer, observer)))
        training = build(run, history=None)
        training.resume(folder.checkpoint)
        writer.start(run, training.grower)
    return result


def require_tensorboard() -> None:
    """Raise before anything is run if TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise MeristemError("--tensorboard needs a package more: pip install 'meristem[tensorboard]'") from None


def scalars(record: Record, space: Space) -> dict[str, float]:
    """The finite numbers of a record by their tags; widths as shares of the full ones, 0 inside an absent block."""
    widths = record["widths"]
    shares = {name: width / space.full[name] for name, width in widths.items()}
    shares.update(dict.fromkeys(space.inactive_groups(widths), 0.0))
    return {
        _TAGS.get(first, f"run/{first}" + "/{}" * bool(rest)).format("/".join(rest)): float(value)
        for (first, *rest), value in _leaves({**record, "widths": shares})
        if first != "epoch" and isinstance(value, (int, float)) and math.isfinite(value)
    }


def budget_scalars(grower: Grower) -> dict[str, float]:
    """The budget of the run: a constant line in the graphs."""
    caps = {f"cost/{name}_budget": cap for name, cap in grower.trajectory.caps.items()}
    spend = grower.budget.spend_share
    return caps if spend is None else {**caps, "spend/budget": spend}


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value with its path of names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from (((name, *names), inner) for names, inner in _leaves(value))
        else:
            yield (name,), value
