"""``meristem simulate``: the course of cost and widths that a run is expected to take, before it is paid for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch

from meristem.control.budget import Budget
from meristem.control.simulation import SimulatedEpoch, simulate
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.space.space import Space
from meristem_bench.commands.arguments import settings_from_flags, whole_number
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import build_model, load_data, trace_model
from meristem_bench.show.formatting import percent
from meristem_bench.show.width_bars import ASCII, WidthRow, row_lines

_ROWS, _COLUMNS = 16, 100
_MISS = 0.05  # of the budget, from which on it is worth a word


def show(args: argparse.Namespace) -> int:
    run = find_run(args.recipe or "digits", args.model).with_settings(settings_from_flags(args))
    data = load_data(run)
    steps = data.steps(run.batch)
    with torch.random.fork_rng():
        space = trace_model(run, build_model(run, data), data.example)
    runs = [_simulated(run, space, steps, run.seed + seed) for seed in range(whole_number("--seeds", args.seeds))]
    print(f"{run.name}: method {run.growth.method}  budget {run.growth.budget}  {run.epochs} epochs of {steps} steps")
    print("What the method does when the task says nothing; a task can move widths from here.\n")
    print(_course_table(runs, run.growth.budget))
    if advice := _advice(run, space, runs):
        print(advice)
    print("\nThe last network of the first seed:")
    last = runs[0][-1].widths
    rows = [WidthRow(name, last[name], units) for name, units in space.full.items()]
    print("\n".join(row_lines(rows, _COLUMNS, ASCII)))
    return 0


def _simulated(run: Run, space: Space, steps: int, seed: int) -> list[SimulatedEpoch]:
    method, budget = run.growth.policies, run.growth.budget
    if method.needs_widths or method.ignores_budget:
        raise MeristemError(f"nothing grows under the method {run.growth.method}; simulate another one by --method")
    schedule = run.optimizer.schedule.factor
    return simulate(method, space, budget, epochs=run.epochs, steps=steps, lr_frac=schedule, seed=seed)


def _advice(run: Run, space: Space, runs: Sequence[Sequence[SimulatedEpoch]]) -> str | None:
    """What to do where the method misses its budget in a run of this length."""
    caps = run.growth.budget.shares(Prices(space))
    reached = max(float(np.mean([each[-1].shares[name] for each in runs])) / cap for name, cap in caps.items())
    if reached > 1 - _MISS:
        return None
    return (
        f"A run of this length ends {1 - reached:.0%} under its budget with the method {run.growth.method}: train for "
        f"more epochs, or use --method paper-steady, which reaches the budget in any run"
    )


def _course_table(runs: Sequence[Sequence[SimulatedEpoch]], budget: Budget) -> str:
    """A line for some of the epochs, the first and the last among them: the cost, in mean and deviation over seeds."""
    epochs = len(runs[0])
    shown = sorted({round(place) for place in np.linspace(0, epochs - 1, min(_ROWS, epochs))})
    metrics = list(runs[0][0].shares)
    lines = ["epoch" + "".join(f"{metric:>20}" for metric in metrics)]
    for epoch in shown:
        cells = []
        for metric in metrics:
            shares = [run[epoch].shares[metric] for run in runs]
            deviation = f" ± {100 * float(np.std(shares)):.1f}" if len(runs) > 1 else ""
            cells.append(f"{percent(float(np.mean(shares)))}{deviation}")
        lines.append(f"{epoch + 1:5}" + "".join(f"{cell:>20}" for cell in cells))
    costs = [float(np.mean([epoch.shares["macs"] for epoch in run])) for run in runs]
    lines.append(f"training cost {percent(float(np.mean(costs)))} of the dense run; budget {budget}")
    return "\n".join(lines)
