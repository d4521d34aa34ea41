"""TensorBoard: the graphs of a run as event files in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from meristem_bench.runs.folder import Folder
from meristem_bench.runs.run import Run

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardWriter:
    """Writes event files."""

    needs = "torch.utils.tensorboard"

    def __init__(self) -> None:
        self._writer: SummaryWriter | None = None

    @staticmethod
    def mark(folder: Folder) -> Path:
        return folder.graphs

    def begin(self, run: Run, folder: Folder) -> int:
        """Have all records so far written anew: the graphs then hold what the run knows, whatever a killed one wrote.

        Event files that lie there are emptied and not removed: a TensorBoard that is reading one would wait for it.
        ``purge_step`` makes it forget what it has read.
        """
        from torch.utils.tensorboard import SummaryWriter

        for events in folder.graphs.glob("events.out.tfevents.*"):
            events.write_bytes(b"")
        self._writer = SummaryWriter(str(folder.graphs), purge_step=0)
        self._writer.flush()
        return 0

    def write(self, points: Mapping[str, float], epoch: int, moment: float) -> None:
        assert self._writer is not None
        for tag, value in points.items():
            self._writer.add_scalar(tag, value, epoch, moment)
        self._writer.flush()

    def close(self, finished: bool) -> None:
        if self._writer is not None:
            self._writer.close()
