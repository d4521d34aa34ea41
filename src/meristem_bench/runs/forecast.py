"""What a run is expected to cost, epoch by epoch, and a word of warning where it will miss its budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meristem.control.simulation import SimulatedEpoch, simulate
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.space.space import Space
from meristem_bench.runs.run import Run

_MISS = 0.05  # of the budget, from which on it is worth a word
_LATE, _SMALL = (
    0.8,
    0.5,
)  # a network of less than half of its budget after four fifths of the run will hardly be trained
_SEEDS = 2  # of the simulations behind a warning; they agree within a percent or two


def forecast(run: Run, space: Space, steps: int, seed: int) -> list[SimulatedEpoch]:
    """The network of every epoch of growing, of ``steps`` each, if the task says nothing."""
    method, budget = run.growth.policies, run.growth.budget
    if method.needs_widths or method.ignores_budget:
        raise MeristemError(f"nothing grows under the method {run.growth.method}; simulate another one by --method")
    if budget.spend is not None and not method.controller.follows_plan:
        raise MeristemError(f"a spend budget needs a method that follows a plan, e.g. default, not {run.growth.method}")
    schedule = run.optimizer.schedule.factor
    return simulate(method, space, budget, epochs=run.epochs, steps=steps, lr_frac=schedule, seed=seed)


def budget_warning(run: Run, space: Space, forecasts: Sequence[Sequence[SimulatedEpoch]]) -> str | None:
    """What to do where the method misses its budget in a run of this length, or reaches it too late; else None."""
    caps = run.growth.budget.shares(Prices(space))

    def reached(epoch: int) -> float:
        """The share of the budget that is used; of several caps the one that is used most."""
        return max(float(np.mean([each[epoch].shares[name] for each in forecasts])) / cap for name, cap in caps.items())

    if reached(-1) > 1 - _MISS:
        late = int(_LATE * run.epochs)
        if late < 2 or reached(late) > _SMALL:
            return None
        return (
            f"With the method {run.growth.method} the network has {reached(late):.0%} of its budget after {late} of "
            f"{run.epochs} epochs, and what the last draw fills it with is hardly trained: use --method paper-steady "
            f"as it is"
        )
    return (
        f"A run of this length ends about {1 - reached(-1):.0%} under its budget with the method {run.growth.method}: "
        f"train for more epochs, or use --method paper-steady, which reaches the budget in any run"
    )


def warning_before(run: Run, space: Space, steps: int) -> str | None:
    """The same for a run that is about to start, where its method has no plan that keeps it on its budget."""
    method = run.growth.policies
    plain = method.controller.follows_plan or not method.scores.trains_gates or not method.has_budget
    if plain or not method.can_be_simulated:
        return None
    return budget_warning(run, space, [forecast(run, space, steps, run.seed + seed) for seed in range(_SEEDS)])
