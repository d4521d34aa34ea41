"""``meristem export``: the network of a run as it stands, finished or not."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from meristem.errors import FileError
from meristem.io.export import read_files
from meristem_bench.commands.arguments import settings_from_flags
from meristem_bench.recipes.lookup import run_in_folder
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.training import build


def export(args: argparse.Namespace) -> int:
    folder, out = Folder(Path(args.run_folder)), Path(args.out)
    folder.read_description()  # refuses what is no run
    if out.exists() and (not out.is_dir() or os.listdir(out)):
        raise FileError(f"{out} exists already; give another --out")
    if folder.result.is_file() and _whole(folder.model):
        try:
            shutil.copytree(folder.model, out, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            shutil.rmtree(out, ignore_errors=True)
            raise FileError(f"the network cannot be copied to {out} ({error}); give another --out") from None
        print(f"The network of the finished run is in {out}")
    else:
        if not folder.checkpoint.is_file():
            raise FileError(f"{folder.path} has no finished epoch yet; there is nothing to export")
        run = run_in_folder(folder, args.recipe, args.model, "name it by --recipe MODULE:FUNCTION")
        training = build(run.with_settings(settings_from_flags(args)), history=None)
        training.resume(folder.checkpoint, may_differ=("device",))
        training.grower.save(out)
        print(f"The network after epoch {training.grower.epoch} of {training.run.all_epochs} is in {out}")
    print(f"Load it into a full-size model: meristem.load({str(out)!r}, model)")
    return 0


def _whole(model: Path) -> bool:
    """Whether the exported network is there and undamaged; otherwise the checkpoint can make it again."""
    try:
        read_files(model)
    except FileError:
        return False
    return True
