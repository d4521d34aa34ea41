"""How much of the widths that the paper's method finds comes from the task: finished runs against runs without data.

    python benchmarks/task_influence.py RUN [RUN ...]      # folders of runs of one recipe with trained gates

A run is simulated with its own method, budget, length and seed: same first scores, same random numbers, no data. What
differs is the task's doing. Of every run it prints the share of the variance of the widths (units that live, as a share
of the group) that the difference makes; of two seeds of one method also how far they differ in the same direction,
because what is not the same for two seeds is chance that the task has set off.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from meristem.control.simulation import simulate
from meristem.space.arrays import FloatArray
from meristem_bench.recipes.lookup import run_in_folder
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import build_model, load_data, trace_model


def differences(run: Run, folder: Folder) -> tuple[FloatArray, FloatArray]:
    """The widths of the finished network, and how they differ from those without data, as shares of the groups."""
    data = load_data(run)
    space = trace_model(run, build_model(run, data), data.example)
    result = json.loads(folder.result.read_text())
    last = simulate(
        run.growth.policies,
        space,
        run.growth.budget,
        epochs=run.epochs,
        steps=data.steps(run.batch),
        lr_frac=run.optimizer.schedule.factor,
        seed=run.seed,
    )[-1]
    full = np.array(list(space.full.values()))
    trained = np.array([result["widths"][name] for name in space.full]) / full
    silent = np.array([last.widths[name] for name in space.full]) / full
    return trained, trained - silent


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    by_method: dict[str, list[FloatArray]] = {}
    for path in parser.parse_args().runs:
        folder = Folder(path)
        run = run_in_folder(folder, None, None, "only meristem's own recipes can be read here")
        trained, difference = differences(run, folder)
        share = float(np.mean(difference**2) / trained.var())
        by_method.setdefault(run.growth.method, []).append(difference)
        print(f"{run.growth.method}  seed {run.seed}: widths differ by {np.abs(difference).mean():.1%} of a group from")
        print(f"    those without data, which is {min(share, 1.0):.1%} of their variance")
    for method, found in by_method.items():
        if len(found) > 1 and all(each.any() for each in found[:2]):
            agreement = float(np.corrcoef(found[0], found[1])[0, 1])
            print(f"{method}: the differences of the first two seeds correlate by {agreement:+.2f}")


if __name__ == "__main__":
    main()
