"""``meristem evaluate``: the exported network of a finished run, loaded afresh, on the test set."""

from __future__ import annotations

import argparse
from pathlib import Path

from meristem.errors import MeristemError
from meristem.io.export import load
from meristem_bench.commands.arguments import settings_from_flags
from meristem_bench.recipes.lookup import run_in_folder
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import evaluate
from meristem_bench.runs.result import finished_result
from meristem_bench.runs.training import build_model, load_data


def show(args: argparse.Namespace) -> int:
    folder = Folder(Path(args.run_folder))
    run = run_in_folder(folder, args.recipe, args.model, "name it by --recipe MODULE:FUNCTION")
    run = run.with_settings(settings_from_flags(args))
    result = finished_result(folder)
    if result is None:
        raise MeristemError(f"the run in {folder.path} is not finished; meristem grow --resume {folder.path}")
    device = run.machine.prepare()
    data = load_data(run)
    model = load(folder.model, build_model(run, data)).to(device)
    metrics = evaluate(run, data, model, "test")
    print(f"{'test':18}{'now':>14}{'in the run':>14}")
    for metric, value in metrics.items():
        print(f"{metric:18}{value:>14.6f} {result['test'].get(metric, float('nan')):>13.6f}")
    return 0
