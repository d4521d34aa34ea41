"""The metric against the cost, over several budgets: one curve for experiments that differ in their budgets alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from meristem_bench.report.curve_figures import headline_metric
from meristem_bench.report.experiments import Experiment, group_by_arm, spread
from meristem_bench.report.figure_style import ReportFigure, colours, legend, new_figure
from meristem_bench.report.page_text import capitalised
from meristem_bench.report.reported_run import FloatArray
from meristem_bench.runs.task_metric import TaskMetric

_AXES = (
    ("params_frac", "parameters", "parameters of the final network, % of full"),
    ("macs_frac", "macs", "macs of the final network, % of full"),
    ("spend", "spend", "macs of training, % of dense"),
)
_MARKS = "osD^vPX"
_MIN_RANGE = 0.005  # of costs, as a share of the full model


def tradeoff_figures(experiments: Sequence[Experiment]) -> Iterator[ReportFigure]:
    """A figure per kind of cost; none if fewer than two experiments are finished.

    The full model is a line across the figure: at 100 % it would press the others together.
    """
    headline = headline_metric(experiments)
    finished = [experiment for experiment in experiments if len(experiment.finals("params_frac"))]
    smaller = [experiment for experiment in finished if not experiment.first.is_reference]
    if headline is None or len(smaller) < 2:
        return
    arms = group_by_arm(finished)
    for key, word, label in _AXES:
        costs = [float(spread(_costs(experiment, key)).mean) for experiment in smaller]
        if not max(costs) - min(costs) > _MIN_RANGE:  # all in one column: the table shows it better
            continue
        figure, (axes,) = new_figure(height=3.3)
        for (title, experiments), colour, mark in zip(arms, colours(len(arms)), cycle(_MARKS), strict=False):
            points = [_point(experiment, key, headline) for experiment in experiments]
            if experiments[0].first.is_reference:
                axes.axhline(points[0][1], color=colour, linewidth=1, linestyle=(0, (5, 2)), label=title)
            else:
                _curve(axes, points, title, colour, mark)
        axes.set_xlabel(label)
        axes.set_ylabel(f"test {headline.title}")
        legend(axes)
        full = "; the dashed line is the full model" if len(finished) > len(smaller) else ""
        caption = (
            f"Each point is an experiment: the {headline.name} of its final networks on the test data against their "
            f"{word}; bars are deviations over seeds{full}."
        )
        yield ReportFigure(f"tradeoff-{word}", f"{capitalised(headline.name)} against {word}", caption, figure)


def _costs(experiment: Experiment, key: str) -> FloatArray:
    return experiment.spends if key == "spend" else experiment.finals(key)


def _point(experiment: Experiment, key: str, metric: TaskMetric) -> tuple[float, float, float]:
    """Mean cost, mean metric and its deviation."""
    scores = spread(metric.shown(1.0) * experiment.finals("test", metric.name))
    return 100 * float(spread(_costs(experiment, key)).mean), float(scores.mean), float(scores.deviation)


def _curve(axes: Axes, points: Sequence[tuple[float, float, float]], label: str, colour: str, mark: str) -> None:
    x, y, error = (np.array(column) for column in zip(*sorted(points), strict=True))
    axes.errorbar(
        x, y, yerr=error if error.any() else None, color=colour, marker=mark, markersize=5, capsize=2, label=label
    )
