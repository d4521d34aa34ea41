"""The table of a sweep as files: markdown for people, JSON for programs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from meristem.io.atomic import replace_file
from meristem_bench.runs.latency import latency_ms
from meristem_bench.runs.other_work import BUSY
from meristem_bench.runs.result import savings, total_savings
from meristem_bench.runs.task_metric import headline
from meristem_bench.show.result_tables import Rows, comparison_lines, full_model_means

_FORMAT = "meristem-table-1"
_NUMBERS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "params": lambda result: result["params"],
    "params_frac": lambda result: result["params_frac"],
    "macs_frac": lambda result: result["macs_frac"],
    "spend_frac": lambda result: result["spend_frac"],
    "total_spend_frac": lambda result: result.get("total_spend_frac", result["spend_frac"]),
    "savings": savings,
    "total_savings": total_savings,
    "minutes": lambda result: result["seconds"] / 60,
}
_NOTES = (
    "savings: the training cost of the full model over that of the run, both counted in multiply-adds with all stages; "
    "with all: over that of everything the run needed, such as the run that found its widths. "
    "ms: a forward pass of the exported network on one thread of the CPU, eager, the median of several"
)
_BESIDE = "; *: measured while the machine had other work"


def write_table_files(out: Path, rows: Rows, failures: Sequence[str]) -> list[Path]:
    """Write ``table.md`` and ``table.json``; returns where they are."""
    texts = {"table.md": markdown(rows, failures), "table.json": json.dumps(summary(rows, failures), indent=1) + "\n"}
    for name, text in texts.items():
        replace_file(out / name, lambda path, text=text: path.write_text(text, encoding="utf-8"))  # type: ignore[misc]
    return [out / name for name in texts]


def markdown(rows: Rows, failures: Sequence[str] = ()) -> str:
    """The table, what its columns mean, and what failed."""
    head, *lines = comparison_lines(rows)
    marked = any(cell.endswith("*") for line in lines for cell in line)
    table = ["| " + " | ".join(line) + " |" for line in (head, ("---",) * len(head), *lines)]
    failed = ["", *(f"- failed: {each}" for each in failures)] if failures else []
    return "\n".join([*table, "", f"{_NOTES}{_BESIDE * marked}.", *failed, ""])


def summary(rows: Rows, failures: Sequence[str] = ()) -> dict[str, Any]:
    """Means and deviations of every experiment over its seeds, as numbers."""
    rows = [(title, results) for title, results in rows if results]
    metric = headline(rows[0][1][0])
    full = full_model_means(rows, metric)
    experiments = []
    for title, results in rows:
        scores = [metric.shown(float(result["test"][metric.name])) for result in results]
        dense = full.get(results[0].get("name"))
        batches = dict.fromkeys(size for result in results for size in latency_ms(result))
        experiments.append(
            {
                "title": title,
                "seeds": [result.get("seed") for result in results],
                f"test_{metric.name}": _spread(scores),
                "drop_from_dense": None if dense is None else metric_drop(statistics.mean(scores), dense),
                **{name: _spread([float(number(result)) for result in results]) for name, number in _NUMBERS.items()},
                "spend_macs_by_stage": _stages(results),
                "latency_ms": {
                    size: _spread([latency_ms(result)[size] for result in results if size in latency_ms(result)])
                    for size in batches
                },
                "latency_beside_other_work": any(
                    ((result.get("latency") or {}).get("other_work") or 0.0) > BUSY for result in results
                ),
            }
        )
    return {"format": _FORMAT, "metric": metric.name, "experiments": experiments, "failed": list(failures)}


def metric_drop(score: float, dense: float) -> float:
    """How far a score lies below that of the full model; below zero: above it."""
    return dense - score


def _stages(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean training cost of every stage, of runs that tell it."""
    costs_by_stage = [result["spend_by_stage"] for result in results if result.get("spend_by_stage")]
    names = dict.fromkeys(name for stages in costs_by_stage for name in stages)
    return {name: statistics.mean(stages.get(name, 0.0) for stages in costs_by_stage) for name in names}


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": statistics.mean(values), "deviation": statistics.stdev(values) if len(values) > 1 else 0.0}
