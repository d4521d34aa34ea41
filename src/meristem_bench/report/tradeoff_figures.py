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
Arm = tuple[str, Sequence[Experiment]]  # its title, and one experiment a budget

_MARKS = "osD^vPX"
_MIN_RANGE = 0.005  # of costs, as a share of the full model


def tradeoff_figures(experiments: Sequence[Experiment]) -> Iterator[ReportFigure]:
    """A figure per kind of cost, and one with all of them; none if fewer than two experiments are finished.

    The full model is a line across the figure: at 100 % it would press the others together.
    """
    headline = headline_metric(experiments)
    finished = [experiment for experiment in experiments if len(experiment.finals("params_frac"))]
    smaller = [experiment for experiment in finished if not experiment.first.is_reference]
    if headline is None or len(smaller) < 2:
        return
    arms = group_by_arm(finished)
    full = "; the dashed line is the full model" if len(finished) > len(smaller) else ""
    bars = f"bars are deviations over seeds{full}"
    differing = [
        axis for axis in _AXES if _differ(smaller, axis[0])
    ]  # others are one column: the table shows it better
    for key, word, label in differing:
        figure, (axes,) = new_figure(height=3.3)
        _draw(axes, arms, key, label, headline)
        axes.set_ylabel(f"test {headline.title}")
        legend(axes)
        caption = (
            f"Each point is an experiment: the {headline.name} of its final networks on the test data against their "
            f"{word}; {bars}."
        )
        yield ReportFigure(f"tradeoff-{word}", f"{capitalised(headline.name)} against {word}", caption, figure)
    if len(differing) > 1:
        yield _all_costs(arms, differing, headline, bars)


def _all_costs(
    arms: Sequence[Arm], costs: Sequence[tuple[str, str, str]], headline: TaskMetric, bars: str
) -> ReportFigure:
    """The same beside one another: what is gained in one kind of cost may be paid for in another."""
    figure, panels = new_figure(columns=len(costs), height=3.2, sharey=True)
    figure.set_figwidth(3.1 * len(costs))
    for axes, (key, word, _) in zip(panels, costs, strict=True):
        _draw(axes, arms, key, f"{'training cost' if key == 'spend' else word}, % of full", headline)
    panels[0].set_ylabel(f"test {headline.title}")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))
    caption = (
        f"The {headline.name} on the test data against every kind of cost at once: one point an experiment; {bars}."
    )
    return ReportFigure("tradeoff", f"{capitalised(headline.name)} against every cost", caption, figure, tall=True)


def _differ(experiments: Sequence[Experiment], key: str) -> bool:
    costs = [float(spread(_costs(experiment, key)).mean) for experiment in experiments]
    return max(costs) - min(costs) > _MIN_RANGE


def _draw(axes: Axes, arms: Sequence[Arm], key: str, label: str, headline: TaskMetric) -> None:
    """A curve for every arm, a line across for the full model."""
    for (title, experiments), colour, mark in zip(arms, colours(len(arms)), cycle(_MARKS), strict=False):
        points = [_point(experiment, key, headline) for experiment in experiments]
        if experiments[0].first.is_reference:
            axes.axhline(points[0][1], color=colour, linewidth=1, linestyle=(0, (5, 2)), label=title)
        else:
            _curve(axes, points, title, colour, mark)
    axes.set_xlabel(label)


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
