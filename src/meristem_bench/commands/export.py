"""``meristem export``: the network of a run as it stands, finished or not."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from torch import nn

from meristem.errors import FileError
from meristem.io.export import load, read_files
from meristem_bench.commands.arguments import settings_from_flags
from meristem_bench.recipes.lookup import run_in_folder
from meristem_bench.runs.data import Data
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.interchange import ONNX, TORCH_EXPORT, Interchange, require_onnx
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import build, build_model, load_data


def export(args: argparse.Namespace) -> int:
    folder, out = Folder(Path(args.run_folder)), Path(args.out)
    folder.read_description()  # refuses what is no run
    if out.exists() and (not out.is_dir() or os.listdir(out)):
        raise FileError(f"{out} exists already; give another --out")
    if args.onnx:
        require_onnx()
    if folder.result.is_file() and _whole(folder.model):
        _copy(folder.model, out)
        print(f"The network of the finished run is in {out}")
        if args.onnx or args.torch_export:
            run = _run(args, folder)
            data = load_data(run)
            _write(args, run, data, load(out, build_model(run, data)))
    else:
        if not folder.checkpoint.is_file():
            raise FileError(f"{folder.path} has no finished epoch yet; there is nothing to export")
        training = build(_run(args, folder), history=None)
        training.resume(folder.checkpoint, may_differ=("device",))
        with training.averaged():
            training.grower.save(out)
            network = training.grower.export()
        print(f"The network after epoch {training.grower.epoch} of {training.run.all_epochs} is in {out}")
        if args.onnx or args.torch_export:
            _write(args, training.run, training.data, network)
    print(f"Load it into a full-size model: meristem.load({str(out)!r}, model)")
    return 0


def _run(args: argparse.Namespace, folder: Folder) -> Run:
    run = run_in_folder(folder, args.recipe, args.model, "name it by --recipe MODULE:FUNCTION")
    return run.with_settings(settings_from_flags(args))


def _copy(model: Path, out: Path) -> None:
    try:
        shutil.copytree(model, out, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(out, ignore_errors=True)
        raise FileError(f"the network cannot be copied to {out} ({error}); give another --out") from None


def _write(args: argparse.Namespace, run: Run, data: Data, network: nn.Module) -> None:
    """Write the network in the formats that are asked for, too, and say how far each agrees with it."""
    interchange, out = Interchange(run, data, network), Path(args.out)
    if args.onnx:
        print(interchange.write_onnx(out / ONNX))
    if args.torch_export:
        print(interchange.write_torch_export(out / TORCH_EXPORT))


def _whole(model: Path) -> bool:
    """Whether the exported network is there and undamaged; otherwise the checkpoint can make it again."""
    try:
        read_files(model)
    except FileError:
        return False
    return True
