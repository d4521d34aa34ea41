"""Result tables as text: a run beside the full model, and several experiments over their seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from meristem_bench.runs.latency import latency_ms
from meristem_bench.runs.other_work import BUSY
from meristem_bench.runs.result import savings, total_savings, trains_full_model
from meristem_bench.runs.task_metric import TaskMetric, headline
from meristem_bench.show.formatting import blocks_text, clock, count_text, mean_and_deviation, percent, savings_text


def result_table(result: Mapping[str, Any], dense: Mapping[str, Any] | None) -> str:
    """The result of a run beside that of the full model, as far as the latter is known."""
    full, metric = result["full"], headline(result)
    mine, theirs = (float(each["test"][metric.name]) for each in (result, dense or result))
    not_trained, total = "not trained", result.get("total_spend_frac", result["spend_frac"])
    needs_another = total - result["spend_frac"] > 1e-9  # it trains what another run has grown
    rows = [
        (
            f"test {metric.name}",
            metric.text(mine, metric.digits),
            metric.text(theirs, metric.digits) if dense else not_trained,
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
        ("savings", savings_text([savings(result)]), savings_text([1.0]), ""),
        *([("with growing", savings_text([1 / total]), "", percent(total))] if needs_another else []),
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


Rows = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]


def comparison_table(rows: Rows) -> str:
    """A line per experiment: its title, and means and deviations of its results over the seeds.

    Where the full model was trained, too, the change of the test metric from it is in brackets.
    """
    lines = comparison_lines(rows)
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([f"{line[0]:{first}}", *(f"{cell:>{width}}" for cell, width in zip(line[1:], others, strict=True))])
        for line in lines
    )


def comparison_lines(rows: Rows) -> list[tuple[str, ...]]:
    """The cells of the same table, its head first.

    The training cost with all that a run needs, and how fast the network is, have columns where that says something.
    """
    rows = [(title, results) for title, results in rows if results]
    metric = headline(rows[0][1][0])
    validated = any(_values(results, "validation", metric) for _, results in rows)
    deep = any(result.get("blocks") for _, results in rows for result in results)
    needy = any(total_savings(result) < savings(result) for _, results in rows for result in results)
    batches = dict.fromkeys(size for _, results in rows for result in results for size in latency_ms(result))
    head = (
        *("", "seeds", *(["validation"] if validated else []), f"test {metric.title}", *(["blocks"] if deep else [])),
        *("parameters", "macs, %", "savings", *(["with all"] if needy else []), "minutes"),
        *(f"ms, batch {size}" for size in batches),
    )
    full, lines = full_model_means(rows, metric), [head]
    for title, results in rows:
        validation = _values(results, "validation", metric)
        networks = dict.fromkeys(blocks_text(result.get("blocks") or {}) for result in results)
        lines.append(
            (
                *(title, str(len(results))),
                *([mean_and_deviation(validation, 2) if validation else ""] if validated else []),
                _score(results, metric, full.get(results[0].get("name"))),
                *([", ".join(networks)] if deep else []),
                *_costs(results, needy),
                *(_latency(results, size) for size in batches),
            )
        )
    return lines


def full_model_means(rows: Rows, metric: TaskMetric) -> dict[str | None, float]:
    """The mean test metric of the full model, for each recipe that has trained it for all its epochs."""
    means = {}
    for _, results in rows:
        values = _values(results, "test", metric)
        at_full_cost = abs(float(results[0].get("spend_frac", 1.0)) - 1) < 1e-6  # not one at another's cost
        if values and at_full_cost and trains_full_model(str(results[0].get("method"))):
            means[results[0].get("name")] = statistics.mean(values)
    return means


def _score(results: Sequence[Mapping[str, Any]], metric: TaskMetric, full: float | None) -> str:
    values = _values(results, "test", metric)
    if not values:
        return ""
    change = "" if full is None else f" ({statistics.mean(values) - full:+.{metric.digits}f})"
    return f"{mean_and_deviation(values, metric.digits)}{change}"


def _latency(results: Sequence[Mapping[str, Any]], size: str) -> str:
    """Milliseconds of a forward pass; a star where the machine had other work meanwhile."""
    measured = [(latency_ms(result)[size], result["latency"]) for result in results if size in latency_ms(result)]
    if not measured:
        return ""
    beside = any((latency.get("other_work") or 0.0) > BUSY for _, latency in measured)
    mean = statistics.mean(ms for ms, _ in measured)
    return mean_and_deviation([ms for ms, _ in measured], 1 if mean >= 10 else 2) + "*" * beside


def _costs(results: Sequence[Mapping[str, Any]], needy: bool) -> tuple[str, ...]:
    """Parameters, macs, what was saved in training, with all that was needed too, and minutes."""
    params_frac = statistics.mean(result["params_frac"] for result in results)
    macs = [100 * result["macs_frac"] for result in results]
    return (
        f"{count_text([result['params'] for result in results])} ({percent(params_frac)})",
        mean_and_deviation(macs, 1 if max(macs) >= 10 else 2),
        savings_text([savings(result) for result in results]),
        *([savings_text([total_savings(result) for result in results])] if needy else []),
        mean_and_deviation([result["seconds"] / 60 for result in results], 1),
    )


def _values(results: Sequence[Mapping[str, Any]], split: str, metric: TaskMetric) -> list[float]:
    """The metric of every result on a split, or nothing if one lacks it: not every run holds out validation data."""
    values = [(result.get(split) or {}).get(metric.name) for result in results]
    measured = [metric.shown(value) for value in values if value is not None]
    return measured if len(measured) == len(values) else []
