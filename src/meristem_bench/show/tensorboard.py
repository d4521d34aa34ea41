"""TensorBoard: everything the records of a run hold, as graphs that grow with it."""

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
from meristem_bench.runs.loop import Watcher, Watchers, carry_out
from meristem_bench.runs.run import Run, finished_result
from meristem_bench.runs.training import build

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# Where the values of a record stand; those that are not named here, under run/.
_PLACES = {
    "params": "cost/params",
    "macs": "cost/macs",
    "params_frac": "cost/params_frac",
    "macs_frac": "cost/macs_frac",
    "spend_macs": "spend/macs",
    "dense_spend_macs": "spend/dense_macs",
    "spend_frac": "spend/frac",
    "total_spend_frac": "spend/total_frac",
    "grown": "structure/grown",
    "restored": "structure/restored",
    "pruned": "structure/pruned",
    "frozen": "structure/frozen",
    "metrics": "metrics/{}",
    "planned": "cost/{}_planned",
    "widths": "width/{}",
    "blocks": "blocks/{}",
    "temperature": "temperature/{}",
    "gates": "gates/{}",
}


class Board:
    """Writes a run's records to event files in ``folder``; a watcher of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None
        self._space: Space | None = None
        self._budget: dict[str, float] = {}

    def start(self, run: Run, grower: Grower) -> None:
        """Write all there is so far anew: the graphs then hold what the run knows, whatever a killed one had written.

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

    def batch(self, step: int, steps: int) -> None:
        """Nothing: a point an epoch."""

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


def carry_out_on_board(run: Run, folder: Folder, watcher: Watcher) -> Record:
    """`carry_out` with graphs; a run that is finished is not run again, but its graphs are written."""
    with closing(Board(folder.graphs)) as board:
        result = finished_result(folder)
        if result is None:
            return carry_out(run, folder, Watchers((board, watcher)))
        training = build(run, history=None)
        training.resume(folder.checkpoint)
        board.start(run, training.grower)
    return result


def require_tensorboard() -> None:
    """Refuse before anything is run, if there is no TensorBoard to write for."""
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
        _PLACES.get(first, f"run/{first}" + "/{}" * bool(rest)).format("/".join(rest)): float(value)
        for (first, *rest), value in _leaves({**record, "widths": shares})
        if first != "epoch" and isinstance(value, (int, float)) and math.isfinite(value)
    }


def budget_scalars(grower: Grower) -> dict[str, float]:
    """What the run may cost: a level in the graphs."""
    found = {f"cost/{name}_budget": cap for name, cap in grower.trajectory.caps.items()}
    spend = grower.budget.spend_share
    return found if spend is None else {**found, "spend/budget": spend}


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value with the names that lead to it."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from (((name, *names), inner) for names, inner in _leaves(value))
        else:
            yield (name,), value
