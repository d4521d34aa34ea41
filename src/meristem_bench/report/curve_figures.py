"""Curves over the epochs of one or several experiments: metrics, cost, training cost, time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from meristem_bench.report.experiments import Experiment, Spread, spread
from meristem_bench.report.figure_style import (
    INK,
    MUTED,
    SERIES,
    ReportFigure,
    colours,
    label_epochs,
    legend,
    log_scale_if_wide,
    new_figure,
    point_marker,
)
from meristem_bench.report.page_text import capitalised, file_name, shortened
from meristem_bench.report.reported_run import FloatArray, ReportedRun
from meristem_bench.runs.task_metric import TaskMetric, headline, metric

_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1, 1.5)))


def curve_figures(experiments: Sequence[Experiment]) -> Iterator[ReportFigure]:
    """A figure for everything that was recorded per epoch."""
    for draw in (_metric, _loss, _cost, _epoch_macs, _total_macs, _seconds):
        figure = draw(experiments)
        if figure is not None:
            yield figure


def line(axes: Axes, x: FloatArray, values: Spread, colour: str, label: str | None, dashes: object = "-") -> None:
    """Draw a mean, and a band of one deviation on both sides where seeds differ."""
    finite = np.isfinite(values.mean)
    if label is not None and label.startswith("_"):
        label = f" {label}"  # a legend leaves out what begins with an underscore
    axes.plot(x[finite], values.mean[finite], color=colour, label=label, linestyle=dashes, **point_marker(x[finite]))
    if (values.deviation > 0).any():
        low, high = values.mean - values.deviation, values.mean + values.deviation
        axes.fill_between(x[finite], low[finite], high[finite], color=colour, alpha=0.18, linewidth=0)


def _overlay(
    experiments: Sequence[Experiment], curve: Callable[[ReportedRun], FloatArray], label: str, from_zero: bool
) -> tuple[Figure, Axes] | None:
    """One curve per experiment in one figure; None if no run has a value."""
    spreads = [(experiment, experiment.over_seeds(curve)) for experiment in experiments]
    if not any(values.has_values for _, values in spreads):
        return None
    figure, (axes,) = new_figure()
    for (experiment, values), colour in zip(spreads, colours(len(experiments)), strict=True):
        if values.has_values:
            line(axes, experiment.epochs, values, colour, experiment.title)
    label_epochs(axes, label, from_zero)
    return figure, axes


def headline_metric(experiments: Sequence[Experiment]) -> TaskMetric | None:
    """The metric by which runs are judged: the one that the results name, or the first one recorded that is no loss."""
    runs = [run for experiment in experiments for run in experiment.runs]
    for run in runs:
        if run.result is not None and isinstance(name := run.result.get("headline"), str) and name:
            return headline(run.result) if isinstance(run.result.get("metric", {}), dict) else metric(name)
    names = [name for run in runs for name in run.names("metrics")]
    first = next((name for name in names if name.startswith("val_") and name != "val_loss"), None)
    return None if first is None else metric(first.removeprefix("val_"))


def _metric(experiments: Sequence[Experiment]) -> ReportFigure | None:
    """The headline metric over the epochs, if there were validation data; test results alone are in the table."""
    headline = headline_metric(experiments)
    if headline is None or headline.name == "loss":  # the loss has a figure of its own
        return None
    name, scale = headline.name, headline.shown(1.0)
    if not any(experiment.column("metrics", f"val_{name}").has_values for experiment in experiments):
        return None
    figure, (axes,) = new_figure()
    caption = f"The {name} on the validation data after each epoch."
    for experiment, colour in zip(experiments, colours(len(experiments)), strict=True):
        line(
            axes, experiment.epochs, experiment.column("metrics", f"val_{name}").times(scale), colour, experiment.title
        )
        tests = scale * experiment.finals("test", name)
        if np.isfinite(tests).any() and len(experiment.epochs):
            axes.plot(np.full(len(tests), experiment.epochs[-1]), tests, "D", color=colour, markersize=4.5, alpha=0.8)
            caption = f"{caption.partition(' Diamonds')[0]} Diamonds: the {name} of the final network on the test data."
    label_epochs(axes, headline.title)
    legend(axes)
    return ReportFigure(file_name(name), capitalised(name), caption, figure)


def _loss(experiments: Sequence[Experiment]) -> ReportFigure | None:
    figure, (axes,) = new_figure()
    for experiment, colour in zip(experiments, colours(len(experiments)), strict=True):
        for key, dashes, word in (("train_loss", "-", "training"), ("val_loss", _DASHES[1], "validation")):
            values = experiment.column("metrics", key)
            if values.has_values and len(experiments) == 1:
                line(axes, experiment.epochs, values, SERIES[len(axes.lines)], word, dashes)
            elif values.has_values:
                line(axes, experiment.epochs, values, colour, f"{experiment.title}: {word}", dashes)
    if not axes.lines:
        return None
    label_epochs(axes, "loss")
    log_scale_if_wide(axes, [float(value) for curve in axes.lines for value in np.asarray(curve.get_ydata())])
    legend(axes)
    caption = "The mean loss over each epoch's training batches, and on the validation data after it."
    return ReportFigure("loss", "Loss", caption, figure)


def _cost(experiments: Sequence[Experiment]) -> ReportFigure | None:
    """Of one experiment: every cost with its plan and its budget; of several: the cost that is planned, of each."""
    figure, (axes,) = new_figure()
    single = len(experiments) == 1
    any_curve = False
    costs = ["params", "macs"] if single else [_planned_cost(experiments)]
    for experiment, colour in zip(experiments, colours(len(experiments)), strict=True):
        planned = _planned(experiment)
        for number, name in enumerate(costs):
            values = experiment.column(f"{name}_frac").times(100)
            if not values.has_values:
                continue
            shade, any_curve = SERIES[number] if single else colour, True
            line(axes, experiment.epochs, values, shade, name if single else experiment.title)
            if name in planned:
                plan = experiment.column("planned", name).times(100)
                label = f"plan for {name}" if single else None
                axes.plot(experiment.epochs, plan.mean, color=shade, linestyle=_DASHES[2], linewidth=1.3, label=label)
            if name in experiment.first.caps:
                cap = 100 * experiment.first.caps[name]
                axes.axhline(
                    cap, color=MUTED, linewidth=1, linestyle=_DASHES[1], label=f"budget {cap:.3g} %" if single else None
                )
    if not any_curve:
        return None
    label_epochs(axes, "% of the full model" if single else f"{costs[0]}, % of the full model", from_zero=True)
    legend(axes)
    caption = (
        "How large the network was in each epoch, as a share of the full one: solid what it had, dotted the plan, "
        "dashed the budget."
    )
    return ReportFigure("cost", "Cost against plan and budget", caption, figure)


def _planned(experiment: Experiment) -> list[str]:
    return [name for name in experiment.first.names("planned") if experiment.column("planned", name).has_values]


def _planned_cost(experiments: Sequence[Experiment]) -> str:
    """The cost that is drawn of all experiments, with a plan or without: the first that is planned, or has a budget."""
    candidates = [name for experiment in experiments for name in _planned(experiment)]
    candidates += [name for experiment in experiments for name in experiment.first.caps if name in ("params", "macs")]
    return candidates[0] if candidates else "params"


def epoch_share(run: ReportedRun) -> FloatArray:
    """The macs of training in each epoch, in percent of those of the full model."""
    spent, dense = (np.diff(run.column(key), prepend=0.0) for key in ("spend_macs", "dense_spend_macs"))
    first = run.epochs[0] if len(run.records) else 1
    if first != 1:  # earlier records are lost, so the first difference is of several epochs
        spent[:1], dense[:1] = np.nan, np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 100 * spent / dense
    return np.where(np.isfinite(share), share, np.nan)


def _epoch_macs(experiments: Sequence[Experiment]) -> ReportFigure | None:
    overlay = _overlay(experiments, epoch_share, "training macs, % of dense", True)
    if overlay is None:
        return None
    figure, axes = overlay
    if not any(experiment.first.is_full_model for experiment in experiments):  # it has a curve of its own
        axes.axhline(100, color=MUTED, linewidth=1, linestyle=_DASHES[1], label="full model")
    axes.set_ylim(0, max(105.0, axes.get_ylim()[1]))
    legend(axes)
    caption = "Multiply-adds of each epoch's training, as a share of those of the full model."
    return ReportFigure("epoch-macs", "Training cost of each epoch", caption, figure)


def _total_macs(experiments: Sequence[Experiment]) -> ReportFigure | None:
    rows: list[tuple[str, float, float, str, float]] = []  # title, mean, deviation, colour, and the full model's macs
    for experiment, colour in zip(experiments, colours(len(experiments)), strict=True):
        total, dense = (
            spread(np.array([run.column(key)[-1] for run in experiment.runs if run.records]))
            for key in ("spend_macs", "dense_spend_macs")
        )
        if np.isfinite(total.mean) and dense.mean > 0:
            rows.append((experiment.title, float(total.mean), float(total.deviation), colour, float(dense.mean)))
    if not rows:
        return None
    most = max(dense for *_, dense in rows)
    if np.allclose([dense for *_, dense in rows], most, rtol=1e-6, atol=0.0):
        if not any(experiment.first.is_full_model for experiment in experiments):
            rows.append(("full model", most, 0.0, MUTED, most))
    else:  # runs of different lengths or networks: each beside its own full model
        pairs = [(row, (f"full model for {row[0]}", row[4], 0.0, MUTED, row[4])) for row in rows]
        rows = [row for pair in pairs for row in pair]
    figure, (axes,) = new_figure(height=0.9 + 0.36 * len(rows))
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
    caption = (
        "All multiply-adds of training so far, forward and backward, beside those of the full model for the same steps."
    )
    return ReportFigure("total-macs", "Total training cost", caption, figure)


def _macs_unit(most: float) -> tuple[float, str]:
    for exponent, letter in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if most >= 10**exponent:
            return 10.0**exponent, f"{letter}macs"
    return 1.0, "macs"


def _seconds(experiments: Sequence[Experiment]) -> ReportFigure | None:
    overlay = _overlay(experiments, lambda run: run.column("seconds"), "seconds", True)
    if overlay is None:
        return None
    figure, axes = overlay
    legend(axes)
    caption = "Wall-clock time of each epoch as it was measured, whatever else the machine had to do."
    return ReportFigure("seconds", "Time of each epoch", caption, figure)
