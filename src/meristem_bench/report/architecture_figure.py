"""The final network beside the full one, layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from meristem_bench.report.experiments import Experiment
from meristem_bench.report.figure_style import INK, LINE, SERIES, ReportFigure, new_figure
from meristem_bench.report.page_text import shortened

_ROW, _MOST_INCHES = 0.19, 22.0


def architecture_figure(experiment: Experiment, prefix: str = "") -> ReportFigure | None:
    """The silhouette of the full network with the final one inside it; of several seeds the first."""
    layers = experiment.first.layers
    if not layers:
        return None
    row = min(_ROW, _MOST_INCHES / len(layers))
    figure, (axes,) = new_figure(height=0.2 + row * len(layers))
    widest = max(full for _, _, full, _ in layers)
    size = float(np.clip(row * 38, 2.0, 7.0))
    places, fulls = np.arange(len(layers)), np.array([full for _, _, full, _ in layers])
    widths, shades = (
        np.array([width for _, width, _, _ in layers]),
        [SERIES[stage % len(SERIES)] for *_, stage in layers],
    )
    axes.barh(places, fulls, left=-fulls / 2, height=0.8, color=LINE)
    axes.barh(places, widths, left=-widths / 2, height=0.8, color=shades)
    for place, (module, width, full, _) in enumerate(layers):
        text = f"{width:g} of {full:g}" if width != full else f"{full:g}"
        style: Any = {"va": "center", "fontsize": size, "color": INK}
        axes.text(-0.54 * widest, place, shortened(module, 26), ha="right", **style)
        axes.text(0.53 * widest, place, text if width else f"absent ({full:g})", **style)
    axes.set_ylim(len(layers) - 0.4, -0.6)
    axes.set_xlim(-1.1 * widest, 0.86 * widest)
    figure.set_layout_engine("none")  # text inside the axes: tick labels would take seconds to be placed
    axes.set_position((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    seed = f" of seed {experiment.first.seed}" if len(experiment.runs) > 1 else ""
    caption = (
        f"The network as it was after the last epoch{seed}, from input (top) to output: coloured what it has, grey "
        f"what the full one has, colours by stage."
    )
    return ReportFigure(f"{prefix}architecture", "The network beside the full one", caption, figure, tall=True)
