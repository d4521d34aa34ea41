"""Curves over the epochs of one or several experiments: metrics, cost, spend, time, and what came out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from meristem_bench.report.bundles import Bundle, Spread, spread
from meristem_bench.report.reading import FloatArray, Shown
from meristem_bench.report.style import (
    INK,
    MUTED,
    SERIES,
    Drawing,
    alone,
    by_epoch,
    canvas,
    colours,
    file_name,
    legend,
    shortened,
    wide_range,
)
from meristem_bench.runs.metric import Metric, headline, metric

_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1, 1.5)))


def curve_drawings(bundles: Sequence[Bundle]) -> Iterator[Drawing]:
    for draw in (_metric, _loss, _cost, _epoch_macs, _total_macs, _seconds):
        drawing = draw(bundles)
        if drawing is not None:
            yield drawing


def line(axes: Axes, x: FloatArray, values: Spread, colour: str, label: str | None, dashes: object = "-") -> None:
    """A mean, and a band of one deviation to both sides where seeds differ."""
    known = np.isfinite(values.mean)
    if label is not None and label.startswith("_"):
        label = f" {label}"  # a legend leaves out what begins with an underscore
    axes.plot(x[known], values.mean[known], color=colour, label=label, linestyle=dashes, **alone(x[known]))
    if (values.deviation > 0).any():
        low, high = values.mean - values.deviation, values.mean + values.deviation
        axes.fill_between(x[known], low[known], high[known], color=colour, alpha=0.18, linewidth=0)


def _overlaid(
    bundles: Sequence[Bundle], curve: Callable[[Shown], FloatArray], label: str, from_zero: bool
) -> tuple[Figure, Axes] | None:
    spreads = [(bundle, bundle.over_seeds(curve)) for bundle in bundles]
    if not any(values.known for _, values in spreads):
        return None
    figure, (axes,) = canvas()
    for (bundle, values), colour in zip(spreads, colours(len(bundles)), strict=True):
        if values.known:
            line(axes, bundle.epochs, values, colour, bundle.title)
    by_epoch(axes, label, from_zero)
    return figure, axes


def judged_by(bundles: Sequence[Bundle]) -> Metric | None:
    """The metric people look at: what the results say, or the first one that is no loss."""
    runs = [run for bundle in bundles for run in bundle.runs]
    for run in runs:
        if run.result is not None and isinstance(name := run.result.get("headline"), str) and name:
            return headline(run.result) if isinstance(run.result.get("metric", {}), dict) else metric(name)
    names = [name for run in runs for name in run.names("metrics")]
    found = next((name for name in names if name.startswith("val_") and name != "val_loss"), None)
    return None if found is None else metric(found.removeprefix("val_"))


def _metric(bundles: Sequence[Bundle]) -> Drawing | None:
    """Over the epochs, if it was watched; of tests alone there is a table."""
    shown = judged_by(bundles)
    if shown is None or shown.name == "loss":  # which has a figure of its own
        return None
    name, scale = shown.name, shown.shown(1.0)
    if not any(bundle.column("metrics", f"val_{name}").known for bundle in bundles):
        return None
    figure, (axes,) = canvas()
    sentence = f"The {name} on the validation data after each epoch."
    for bundle, colour in zip(bundles, colours(len(bundles)), strict=True):
        line(axes, bundle.epochs, bundle.column("metrics", f"val_{name}").times(scale), colour, bundle.title)
        tests = scale * bundle.finals("test", name)
        if np.isfinite(tests).any() and len(bundle.epochs):
            axes.plot(np.full(len(tests), bundle.epochs[-1]), tests, "D", color=colour, markersize=4.5, alpha=0.8)
            sentence = (
                f"{sentence.partition(' Diamonds')[0]} Diamonds: the {name} of the final network on the test data."
            )
    by_epoch(axes, shown.title)
    legend(axes)
    return Drawing(file_name(name), _capital(name), sentence, figure)


def _loss(bundles: Sequence[Bundle]) -> Drawing | None:
    figure, (axes,) = canvas()
    for bundle, colour in zip(bundles, colours(len(bundles)), strict=True):
        for key, dashes, word in (("train_loss", "-", "training"), ("val_loss", _DASHES[1], "validation")):
            values = bundle.column("metrics", key)
            if values.known and len(bundles) == 1:
                line(axes, bundle.epochs, values, SERIES[len(axes.lines)], word, dashes)
            elif values.known:
                line(axes, bundle.epochs, values, colour, f"{bundle.title}: {word}", dashes)
    if not axes.lines:
        return None
    by_epoch(axes, "loss")
    wide_range(axes, [float(value) for drawn in axes.lines for value in np.asarray(drawn.get_ydata())])
    legend(axes)
    sentence = "The mean loss over each epoch's training batches, and on the validation data after it."
    return Drawing("loss", "Loss", sentence, figure)


def _cost(bundles: Sequence[Bundle]) -> Drawing | None:
    """Of one experiment: every cost with its plan and its cap; of several: the one that is planned, of each."""
    figure, (axes,) = canvas()
    single = len(bundles) == 1
    drawn = False
    costs = ["params", "macs"] if single else [_planned_cost(bundles)]
    for bundle, colour in zip(bundles, colours(len(bundles)), strict=True):
        planned = _planned(bundle)
        for number, name in enumerate(costs):
            values = bundle.column(f"{name}_frac").times(100)
            if not values.known:
                continue
            shade, drawn = SERIES[number] if single else colour, True
            line(axes, bundle.epochs, values, shade, name if single else bundle.title)
            if name in planned:
                plan = bundle.column("planned", name).times(100)
                label = f"plan for {name}" if single else None
                axes.plot(bundle.epochs, plan.mean, color=shade, linestyle=_DASHES[2], linewidth=1.3, label=label)
            if name in bundle.first.caps:
                cap = 100 * bundle.first.caps[name]
                axes.axhline(
                    cap, color=MUTED, linewidth=1, linestyle=_DASHES[1], label=f"budget {cap:.3g} %" if single else None
                )
    if not drawn:
        return None
    by_epoch(axes, "% of the full model" if single else f"{costs[0]}, % of the full model", from_zero=True)
    legend(axes)
    sentence = (
        "How large the network was in each epoch, as a share of the full one: solid what it had, dotted the plan, "
        "dashed the budget."
    )
    return Drawing("cost", "Cost against plan and budget", sentence, figure)


def _planned(bundle: Bundle) -> list[str]:
    return [name for name in bundle.first.names("planned") if bundle.column("planned", name).known]


def _planned_cost(bundles: Sequence[Bundle]) -> str:
    """One cost for all experiments, those that follow no plan as well: the first that is planned, or has a cap."""
    found = [name for bundle in bundles for name in _planned(bundle)]
    found += [name for bundle in bundles for name in bundle.first.caps if name in ("params", "macs")]
    return found[0] if found else "params"


def epoch_share(run: Shown) -> FloatArray:
    """Macs of training in each epoch, in percent of what the full model spends in it."""
    spent, dense = (np.diff(run.column(key), prepend=0.0) for key in ("spend_macs", "dense_spend_macs"))
    first = run.epochs[0] if len(run.records) else 1
    if first != 1:  # earlier records are lost, so the first difference is of several epochs
        spent[:1], dense[:1] = np.nan, np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 100 * spent / dense
    return np.where(np.isfinite(share), share, np.nan)


def _epoch_macs(bundles: Sequence[Bundle]) -> Drawing | None:
    found = _overlaid(bundles, epoch_share, "training macs, % of dense", True)
    if found is None:
        return None
    figure, axes = found
    axes.axhline(100, color=MUTED, linewidth=1, linestyle=_DASHES[1], label="full model")
    axes.set_ylim(0, max(105.0, axes.get_ylim()[1]))
    legend(axes)
    sentence = "Multiply-adds of each epoch's training, as a share of what the full model spends in an epoch."
    return Drawing("epoch-macs", "Training cost of each epoch", sentence, figure)


def _total_macs(bundles: Sequence[Bundle]) -> Drawing | None:
    rows: list[tuple[str, float, float, str, float]] = []  # the last one: what the full model would have spent
    for bundle, colour in zip(bundles, colours(len(bundles)), strict=True):
        total, dense = (
            spread(np.array([run.column(key)[-1] for run in bundle.runs if run.records]))
            for key in ("spend_macs", "dense_spend_macs")
        )
        if np.isfinite(total.mean) and dense.mean > 0:
            rows.append((bundle.title, float(total.mean), float(total.deviation), colour, float(dense.mean)))
    if not rows:
        return None
    most = max(dense for *_, dense in rows)
    if np.allclose([dense for *_, dense in rows], most, rtol=1e-6, atol=0.0):
        rows.append(("full model", most, 0.0, MUTED, most))
    else:  # runs of different lengths or networks: each beside its own
        pairs = [(row, (f"full model for {row[0]}", row[4], 0.0, MUTED, row[4])) for row in rows]
        rows = [row for pair in pairs for row in pair]
    figure, (axes,) = canvas(height=0.9 + 0.36 * len(rows))
    scale, unit = _macs_unit(most)
    for place, (_, amount, deviation, colour, whole) in enumerate(rows):
        axes.barh(place, amount / scale, color=colour, height=0.66)
        if deviation:
            axes.errorbar(amount / scale, place, xerr=deviation / scale, color=INK, linewidth=1, capsize=2)
        text = f"{amount / scale:.3g}" + (f" ({amount / whole:.1%})" if amount != whole else "")
        axes.annotate(text, (amount / scale, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [shortened(title, 40) for title, *_ in rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.3 * max(amount for _, amount, *_ in rows) / scale)
    axes.set_xlabel(f"{unit} of training")
    sentence = (
        "All multiply-adds of training so far, forward and backward, beside those of the full model for the same steps."
    )
    return Drawing("total-macs", "Total training cost", sentence, figure)


def _macs_unit(most: float) -> tuple[float, str]:
    for exponent, letter in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if most >= 10**exponent:
            return 10.0**exponent, f"{letter}macs"
    return 1.0, "macs"


def _seconds(bundles: Sequence[Bundle]) -> Drawing | None:
    found = _overlaid(bundles, lambda run: run.column("seconds"), "seconds", True)
    if found is None:
        return None
    figure, axes = found
    legend(axes)
    sentence = "Wall-clock time of each epoch as it was measured, whatever else the machine had to do."
    return Drawing("seconds", "Time of each epoch", sentence, figure)


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]
