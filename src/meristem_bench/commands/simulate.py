"""``meristem simulate``: the course of cost and widths that a run is expected to take, before it is paid for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch

from meristem.control.budget import Budget
from meristem.control.simulation import SimulatedEpoch
from meristem.history import live_blocks
from meristem.space.space import Space
from meristem_bench.commands.arguments import settings_from_flags, whole_number
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.forecast import budget_warning, forecast
from meristem_bench.runs.training import build_model, load_data, trace_model
from meristem_bench.show.formatting import blocks_text, percent
from meristem_bench.show.width_bars import ASCII, WidthRow, row_lines

_ROWS, _COLUMNS = 16, 100


def show(args: argparse.Namespace) -> int:
    run = find_run(args.recipe or "digits", args.model).with_settings(settings_from_flags(args))
    data = load_data(run)
    steps = data.steps(run.batch)
    with torch.random.fork_rng():
        space = trace_model(run, build_model(run, data), data.example)
    runs = [forecast(run, space, steps, run.seed + seed) for seed in range(whole_number("--seeds", args.seeds))]
    print(f"{run.name}: method {run.growth.method}  budget {run.growth.budget}  {run.epochs} epochs of {steps} steps")
    print("What the method does when the task says nothing; a task can move widths from here.\n")
    print(_course_table(runs, run.growth.budget, space, run.fine_tuning.epochs))
    if warning := budget_warning(run, space, runs):
        print(warning)
    print("\nThe last network of the first seed:")
    last = runs[0][-1].widths
    rows = [WidthRow(name, last[name], units) for name, units in space.full.items()]
    print("\n".join(row_lines(rows, _COLUMNS, ASCII)))
    return 0


def _course_table(runs: Sequence[Sequence[SimulatedEpoch]], budget: Budget, space: Space, fine_tuning: int) -> str:
    """A line for some of the epochs, the first and the last among them: the cost, in mean and deviation over seeds.

    Where depth grows, too, also the blocks of each stage, those of the first seed.
    """
    epochs = len(runs[0])
    shown = sorted({round(place) for place in np.linspace(0, epochs - 1, min(_ROWS, epochs))})
    metrics = list(runs[0][0].shares)
    lines = ["epoch" + "".join(f"{metric:>20}" for metric in metrics) + ("      blocks" if space.stages else "")]
    for epoch in shown:
        cells = []
        for metric in metrics:
            shares = [run[epoch].shares[metric] for run in runs]
            deviation = f" ± {100 * float(np.std(shares)):.1f}" if len(runs) > 1 else ""
            cells.append(f"{percent(float(np.mean(shares)))}{deviation}")
        blocks = f"      {blocks_text(live_blocks(space, runs[0][epoch].masks))}" if space.stages else ""
        lines.append(f"{epoch + 1:5}" + "".join(f"{cell:>20}" for cell in cells) + blocks)
    costs = [float(np.mean([epoch.shares["macs"] for epoch in [*run, *[run[-1]] * fine_tuning]])) for run in runs]
    lines.append(f"training cost {percent(float(np.mean(costs)))} of the dense run; budget {budget}")
    return "\n".join(lines)
