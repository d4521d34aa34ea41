"""Result tables as text: a run beside the full model, and several experiments over their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meristem_bench.runs.result import trains_full_model
from meristem_bench.runs.task_metric import TaskMetric, headline
from meristem_bench.show.formatting import blocks_text, clock, mean_and_deviation, percent


def result_table(result: Mapping[str, Any], dense: Mapping[str, Any] | None) -> str:
    """The result of a run beside that of the full model, as far as the latter is known."""
    full, metric = result["full"], headline(result)
    mine, theirs = (float(each["test"][metric.name]) for each in (result, dense or result))
    not_trained, total = "not trained", result.get("total_spend_frac", result["spend_frac"])
    rows = [
        (
            f"test {metric.name}",
            metric.text(mine, 2),
            metric.text(theirs, 2) if dense else not_trained,
            metric.change(mine, theirs) if dense else "",
        ),
        ("parameters", f"{result['params']:,}", f"{full['params']:,}", percent(result["params_frac"])),
        *([("blocks", blocks_text(result["blocks"]), blocks_text(full["blocks"]), "")] if result.get("blocks") else []),
        ("macs per sample", f"{result['macs']:,}", f"{full['macs']:,}", percent(result["macs_frac"])),
        (
            "macs of training",
            f"{result['spend_macs']:.3g}",
            f"{full['spend_macs']:.3g}",
            percent(result["spend_frac"]),
        ),
        *([("with growing", "", "", percent(total))] if total - result["spend_frac"] > 1e-9 else []),
        (
            "time",
            clock(result["seconds"]),
            clock(dense["seconds"]) if dense else not_trained,
            percent(result["seconds"] / dense["seconds"]) if dense and dense["seconds"] else "",
        ),
    ]
    first = "dense" if trains_full_model(result["method"]) else "grown"
    lines = [("", first, "full", "share"), *rows]
    return "\n".join(f"{name:18}{mine:>14}{theirs:>14}{share:>17}".rstrip() for name, mine, theirs, share in lines)


def comparison_table(rows: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
    """A line per experiment: its title, and means and deviations of its results over the seeds."""
    metric = next(headline(results[0]) for _, results in rows if results)
    deep = any(result.get("blocks") for _, results in rows for result in results)
    splits = [split for split in ("validation", "test") if any(_values(results, split, metric) for _, results in rows)]
    lines: list[tuple[str, ...]] = [
        (
            *("", "seeds", *(f"{split} {metric.title}" for split in splits), *(["blocks"] if deep else [])),
            *("parameters, %", "macs, %", "spend, %", "minutes"),
        )
    ]
    for title, results in rows:
        if results:
            shares = [[100 * result[key] for result in results] for key in ("params_frac", "macs_frac", "spend_frac")]
            networks = dict.fromkeys(blocks_text(result.get("blocks") or {}) for result in results)
            scores = [_values(results, split, metric) for split in splits]
            lines.append(
                (
                    *(title, str(len(results))),
                    *(mean_and_deviation(values, 2) if values else "" for values in scores),
                    *([", ".join(networks)] if deep else []),
                    *(mean_and_deviation(share, 1 if max(share) >= 10 else 2) for share in shares),
                    mean_and_deviation([result["seconds"] / 60 for result in results], 1),
                )
            )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first, *others = widths
    return "\n".join(
        "  ".join([f"{line[0]:{first}}", *(f"{cell:>{width}}" for cell, width in zip(line[1:], others, strict=True))])
        for line in lines
    )


def _values(results: Sequence[Mapping[str, Any]], split: str, metric: TaskMetric) -> list[float]:
    """The metric of every result on a split, or nothing if one lacks it: not every run holds out validation data."""
    values = [(result.get(split) or {}).get(metric.name) for result in results]
    measured = [metric.shown(value) for value in values if value is not None]
    return measured if len(measured) == len(values) else []
