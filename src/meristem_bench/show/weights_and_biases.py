"""Weights & Biases: the graphs of a run as a run of theirs, which goes on when ours does."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meristem.errors import MeristemError
from meristem_bench.runs.folder import Folder, read_json, write_json
from meristem_bench.runs.run import Run


class WandbWriter:
    """Where it goes is for W&B's own settings to say: ``WANDB_PROJECT``, ``WANDB_MODE=offline`` and so on."""

    needs = "wandb"

    def __init__(self) -> None:
        self._run: Any = None

    @staticmethod
    def mark(folder: Folder) -> Path:
        """The file that says which of their runs it is."""
        return folder.path / "wandb.json"

    def begin(self, run: Run, folder: Folder) -> int:
        import wandb

        mark = self.mark(folder)
        name = str(read_json(mark)["run"]) if mark.exists() else secrets.token_hex(4)
        try:
            self._run = wandb.init(
                id=name,
                resume="allow",
                name=str(folder.path),
                config={"recipe": run.name, **run.settings},
                dir=folder.path.resolve(),  # its service may have been started in another folder
                settings=wandb.Settings(console="off", silent=True),  # the terminal is drawn on by ourselves
            )
        except wandb.Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise MeristemError(
                f"--wandb: Weights & Biases cannot begin a run ({reason}); log in by `wandb login`, or set "
                f"WANDB_MODE=offline"
            ) from None
        write_json(mark, {"run": name})
        return max(0, int(self._run.step) - 1)  # theirs is the step that comes next

    def write(self, points: Mapping[str, float], epoch: int, moment: float) -> None:
        self._run.log({**points, "epoch": epoch, "_timestamp": moment}, step=epoch)

    def close(self, finished: bool) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if finished else 1)
