"""The result of a run, as result.json holds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from meristem.cost.count import count_macs, count_params
from meristem.errors import FileError, MeristemError
from meristem.grower import Grower
from meristem.methods import parse_method
from meristem_bench.runs.folder import Folder, read_json
from meristem_bench.runs.run import Run
from meristem_bench.runs.task_metric import metric

Result = dict[str, Any]
RESULT_FORMAT = "meristem-result-1"
_FROM_THE_LAST_RECORD = (
    *("params", "macs", "params_frac", "macs_frac", "spend_macs", "spend_frac", "total_spend_frac"),
    *("peak_bytes", "widths", "blocks", "spend_by_stage"),
)
_SHARES_OF_FULL_TRAINING = ("spend_frac", "total_spend_frac")


def finished_result(folder: Folder) -> Result | None:
    """The result of a finished run; None if there is none that can be read: the run then makes it again."""
    try:
        result = read_json(folder.result)
    except FileError:
        return None
    return result if result.get("format") == RESULT_FORMAT else None


def trains_full_model(method: str) -> bool:
    """Whether a method, as a file names it, trains the full model whatever the budget; an unknown one does not."""
    try:
        return parse_method(method).ignores_budget
    except MeristemError:
        return False


def savings(result: Mapping[str, Any]) -> float:
    """How many times less the training has cost than that of the full model for the same steps.

    >>> savings({"spend_frac": 0.25})
    4.0
    """
    spend = float(result["spend_frac"])
    return 1 / spend if spend else float("inf")


def total_savings(result: Mapping[str, Any]) -> float:
    """The same with all that the run needed: the other runs, too, that it stands on.

    >>> total_savings({"spend_frac": 0.25, "total_spend_frac": 0.5})
    2.0
    """
    return savings({"spend_frac": result.get("total_spend_frac", result["spend_frac"])})


def make_result(run: Run, grower: Grower, seconds: float, metrics: Mapping[str, float]) -> Result:
    """What the run gave, beside what is known of the full model without training it.

    The training cost is a share of what the full model costs in as many epochs as ``run`` describes: one that is
    trained for more or fewer, at equal cost, is compared with the same as all others.
    """
    space, last, trained = grower.space, grower.records[-1], grower.epochs + grower.fine_tune
    longer = run.all_epochs / trained  # the full model's training than this one
    return {
        "format": RESULT_FORMAT,
        "name": run.name,
        "method": run.growth.method,
        "seed": run.seed,
        "epochs": grower.epochs,
        "fine_tune": grower.fine_tune,
        "budget": str(run.growth.budget),
        "headline": run.task.headline,
        "metric": dataclasses.asdict(metric(run.task.headline)),
        "test": metrics,
        "validation": {name.removeprefix("val_"): x for name, x in last["metrics"].items() if name.startswith("val_")},
        **{key: last[key] for key in _FROM_THE_LAST_RECORD},
        **{key: last[key] / longer for key in _SHARES_OF_FULL_TRAINING},
        "seconds": seconds,
        "full": {
            "blocks": {stage.name: stage.fixed + len(stage.blocks) for stage in space.stages},
            "params": round(count_params(space)),
            "macs": round(count_macs(space)),
            "spend_macs": last["dense_spend_macs"] * longer,
        },
    }
