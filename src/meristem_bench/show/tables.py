"""Results as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from meristem_bench.runs.metric import Metric, headline


def table(result: Mapping[str, Any], dense: Mapping[str, Any] | None) -> str:
    """The run's result beside the full model's, as far as that is known."""
    full, metric = result["full"], headline(result)
    mine, theirs = (float(each["test"][metric.name]) for each in (result, dense or result))
    unknown, total = "not trained", result.get("total_spend_frac", result["spend_frac"])
    rows = [
        (
            f"test {metric.name}",
            metric.text(mine, 2),
            metric.text(theirs, 2) if dense else unknown,
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
            clock(dense["seconds"]) if dense else unknown,
            percent(result["seconds"] / dense["seconds"]) if dense and dense["seconds"] else "",
        ),
    ]
    first = "dense" if result["method"] == "dense" else "grown"
    lines = [("", first, "full", "share"), *rows]
    return "\n".join(f"{name:18}{mine:>14}{theirs:>14}{share:>17}".rstrip() for name, mine, theirs, share in lines)


def blocks_text(blocks: Mapping[str, int]) -> str:
    """The blocks of each stage, as papers name such a network.

    >>> blocks_text({"stages.0": 23, "stages.1": 29, "stages.2": 31})
    '23-29-31'
    """
    return "-".join(str(count) for count in blocks.values())


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def spread_table(rows: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
    """One line for each title and the results of several seeds that belong to it: means, and deviations."""
    metric = next(headline(results[0]) for _, results in rows if results)
    deep = any(result.get("blocks") for _, results in rows for result in results)
    splits = [split for split in ("validation", "test") if any(_known(results, split, metric) for _, results in rows)]
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
            lines.append(
                (
                    *(title, str(len(results))),
                    *(spread(known, 2) if (known := _known(results, split, metric)) else "" for split in splits),
                    *([", ".join(networks)] if deep else []),
                    *(spread(share, 1 if max(share) >= 10 else 2) for share in shares),
                    spread([result["seconds"] / 60 for result in results], 1),
                )
            )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first, *others = widths
    return "\n".join(
        "  ".join([f"{line[0]:{first}}", *(f"{cell:>{width}}" for cell, width in zip(line[1:], others, strict=True))])
        for line in lines
    )


def _known(results: Sequence[Mapping[str, Any]], split: str, metric: Metric) -> list[float]:
    """What the metric is on a split, where all of the results say so: not every run holds out validation data."""
    values = [(result.get(split) or {}).get(metric.name) for result in results]
    known = [metric.shown(value) for value in values if value is not None]
    return known if len(known) == len(values) else []


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and, where there are several values that differ, the deviation.

    >>> spread([1.0, 2.0], 1), spread([1.0], 1)
    ('1.5 ± 0.7', '1.0')
    """
    mean = f"{statistics.mean(values):.{digits}f}"
    several = len(values) > 1 and all(map(math.isfinite, values))  # of a perplexity that overflowed there is none
    deviation = f"{statistics.stdev(values) if several else 0.0:.{digits}f}"
    return f"{mean} ± {deviation}" if float(deviation) else mean
