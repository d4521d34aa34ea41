"""Training at equal cost: how long a network of fixed structure is trained to cost what another run has cost."""

from __future__ import annotations

from pathlib import Path

from meristem.control.decider import Decider
from meristem.control.method import Method
from meristem.cost.ledger import FORWARD_AND_BACKWARD
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.space.space import Space
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.result import finished_result
from meristem_bench.runs.run import Run


def at_equal_cost(run: Run, method: Method, space: Space, epoch_samples: float) -> Run:
    """The run with the epochs that make its training cost that of the run in its ``cost_of``, at least one.

    ``epoch_samples`` is how often the samples of the example inputs an epoch sees. Fine-tuning becomes longer or
    shorter in the same proportion, and the learning rate follows its schedule over the epochs there are then.
    """
    dense_macs = FORWARD_AND_BACKWARD * epoch_samples * Prices(space).dense["macs"]
    epochs = _spend_macs(run) / (dense_macs * _macs_share(run, method, space))
    longer = epochs / run.all_epochs
    changes = {"epochs": max(1, round(run.epochs * longer))}
    if run.fine_tuning.epochs:
        changes["fine_tune"] = max(1, round(run.fine_tuning.epochs * longer))
    return run.replace(**changes, warmup=min(run.optimizer.warmup, float(changes["epochs"])))


def _spend_macs(run: Run) -> float:
    """What the training of the other run has cost."""
    assert run.growth.cost_of is not None
    result = finished_result(Folder(Path(run.growth.cost_of)))
    if result is None or not isinstance(result.get("spend_macs"), (int, float)):
        raise MeristemError(
            f"cost_of={run.growth.cost_of} is not the folder of a finished run, so what it has cost is not known; "
            f"finish it first"
        )
    return float(result["spend_macs"])


def _macs_share(run: Run, method: Method, space: Space) -> float:
    """The macs of the network that is trained, as a share of the full one's; its structure is fixed."""
    if method.ignores_budget:
        return 1.0
    decider = Decider(method, space, run.growth.budget, run.epochs, run.fine_tuning.epochs, run.seed)
    return decider.prices.share("macs", {name: len(units) for name, units in decider.first_units.items()})
