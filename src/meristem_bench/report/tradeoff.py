"""Several budgets: what each costs and what it is worth, one curve for all that differ in their budgets alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from meristem_bench.report.bundles import Bundle, by_arm, spread
from meristem_bench.report.curves import judged_by
from meristem_bench.report.reading import FloatArray
from meristem_bench.report.style import Drawing, canvas, colours, legend
from meristem_bench.runs.metric import Metric

_AXES = (
    ("params_frac", "parameters", "parameters of the final network, % of full"),
    ("macs_frac", "macs", "macs of the final network, % of full"),
    ("spend", "spend", "macs of training, % of dense"),
)
_MARKS = "osD^vPX"
_LEAST_APART = 0.005  # of the full model


def tradeoff_drawings(bundles: Sequence[Bundle]) -> Iterator[Drawing]:
    """Nothing, where fewer than two experiments are finished."""
    shown = judged_by(bundles)
    finished = [bundle for bundle in bundles if len(bundle.finals("params_frac"))]
    if shown is None or len(finished) < 2:
        return
    arms = by_arm(finished)
    for key, word, label in _AXES:
        costs = [float(spread(_costs(bundle, key)).mean) for bundle in finished]
        if not max(costs) - min(costs) > _LEAST_APART:  # all in one column: the table says it better
            continue
        figure, (axes,) = canvas(height=3.3)
        for (title, points), colour, mark in zip(arms, colours(len(arms)), cycle(_MARKS), strict=False):
            _curve(axes, [_point(bundle, key, shown) for bundle in points], title, colour, mark)
        axes.set_xlabel(label)
        axes.set_ylabel(f"test {shown.title}")
        legend(axes)
        sentence = (
            f"Each point is an experiment: the {shown.name} of its final networks on the test data against their "
            f"{word}; bars are deviations over seeds."
        )
        yield Drawing(f"tradeoff-{word}", f"{shown.name[:1].upper()}{shown.name[1:]} against {word}", sentence, figure)


def _costs(bundle: Bundle, key: str) -> FloatArray:
    return bundle.spends if key == "spend" else bundle.finals(key)


def _point(bundle: Bundle, key: str, shown: Metric) -> tuple[float, float, float]:
    """Mean cost, mean worth and its deviation."""
    worth = spread(shown.shown(1.0) * bundle.finals("test", shown.name))
    return 100 * float(spread(_costs(bundle, key)).mean), float(worth.mean), float(worth.deviation)


def _curve(axes: Axes, points: Sequence[tuple[float, float, float]], label: str, colour: str, mark: str) -> None:
    x, y, error = (np.array(column) for column in zip(*sorted(points), strict=True))
    axes.errorbar(
        x, y, yerr=error if error.any() else None, color=colour, marker=mark, markersize=5, capsize=2, label=label
    )
