"""The units of one experiment, epoch by epoch: widths, temperatures, blocks, births and deaths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from meristem_bench.report.curve_figures import headline_metric, line
from meristem_bench.report.experiments import Experiment
from meristem_bench.report.figure_style import (
    COLOUR_MAP,
    INK,
    MUTED,
    SERIES,
    ReportFigure,
    label_epochs,
    legend,
    log_scale_if_wide,
    new_figure,
    point_marker,
)
from meristem_bench.report.page_text import shortened
from meristem_bench.report.reported_run import FloatArray, ReportedRun

_MOST_LABELS = 26  # names beside a figure, before they run into each other
_MOST_PANELS = 8


def structure_figures(experiment: Experiment, prefix: str = "") -> Iterator[ReportFigure]:
    """A figure for every aspect of the structure that was recorded; ``prefix`` begins the names of their files."""
    for draw in (_widths, _stages, _blocks, _births, _temperature):
        figure = draw(experiment, prefix)
        if figure is not None:
            yield figure


def _mean_shares(experiment: Experiment, groups: Sequence[str]) -> FloatArray:
    """The retained share of each group (row) at each epoch (column), over the seeds."""
    return np.array([experiment.column("widths", name).mean / max(experiment.first.full[name], 1.0) for name in groups])


def _groups(experiment: Experiment) -> list[str]:
    """The width groups that every run of the experiment has."""
    return [name for name in experiment.first.width_groups if all(name in run.full for run in experiment.runs)]


def _shades(count: int) -> FloatArray:
    """Colours from the first (dark) to the last (light) of some groups."""
    shades: FloatArray = colormaps[COLOUR_MAP](np.linspace(0.05, 0.95, count))
    return shades


def _edges(epochs: FloatArray) -> tuple[float, float]:
    return float(epochs[0]) - 0.5, float(epochs[-1]) + 0.5


# --- widths ---


def _widths(experiment: Experiment, prefix: str) -> ReportFigure | None:
    groups = _groups(experiment)
    if not groups:
        return None
    shares = 100 * _mean_shares(experiment, groups)
    figure, (axes,) = new_figure(height=float(np.clip(0.9 + 0.15 * len(groups), 2.4, 5.2)))
    left, right = _edges(experiment.epochs)
    extent = (left, right, len(groups) - 0.5, -0.5)
    top = _scale_end(shares)
    image = axes.imshow(shares, aspect="auto", extent=extent, vmin=0, vmax=top, cmap=COLOUR_MAP, interpolation="none")
    _name_rows(axes, groups)
    axes.grid(visible=False)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=30)
    bar.set_label("retained, % of its units")
    bar.outline.set_visible(False)
    caption = (
        f"Every row is one of the {len(groups)} groups of units, from input to output; the lighter, the more of its "
        f"units are live."
    )
    return ReportFigure(f"{prefix}widths", "Retained width of each layer", caption, figure)


def _scale_end(shares: FloatArray) -> float:
    """The end of a scale of percents: 100, or for networks that stay narrow the next round number."""
    most = float(np.nan_to_num(shares).max(initial=0.0))
    return 100.0 if most > 50 else max(10.0, 10.0 * math.ceil(most / 10))


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    every = -(-len(names) // _MOST_LABELS)
    rows = range(0, len(names), every)
    axes.set_yticks(list(rows), [shortened(names[row]) for row in rows], fontsize=7)


def stage_members(run: ReportedRun, groups: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The groups of each stage, by the first layer that makes them; neighbouring stages together if there are many."""
    if run.outline is None:
        return []
    makers = {group["name"]: group["makers"] for group in run.outline["groups"]}
    stages = {layer["module"]: int(layer["stage"]) for layer in run.outline["layers"]}
    by_stage: dict[int, list[str]] = {}
    for name in groups:
        stage = next((stages[maker] for maker in makers.get(name, ()) if maker in stages), None)
        if stage is not None:
            by_stage.setdefault(stage, []).append(name)
    members = [by_stage[stage] for stage in sorted(by_stage)]
    together = max(1, -(-len(members) // _MOST_PANELS))
    joined = [list(chain(*members[at : at + together])) for at in range(0, len(members), together)]
    return [(f"{number}: {shortened(names[0], 17)} …", names) for number, names in enumerate(joined, 1)]


def _stages(experiment: Experiment, prefix: str) -> ReportFigure | None:
    members = stage_members(experiment.first, _groups(experiment))
    if len(members) < 2:
        return None
    columns = 2 if len(members) in (2, 4) else 3
    top = _scale_end(100 * _mean_shares(experiment, [name for _, names in members for name in names]))
    rows = -(-len(members) // columns)
    figure, panels = new_figure(rows, columns, height=max(2.2, 0.7 + 1.3 * rows), sharex=True, sharey=True)
    for axes, (title, names) in zip(panels, members, strict=False):
        shares = 100 * _mean_shares(experiment, names)
        for share, shade in zip(shares, _shades(len(names)), strict=True):
            axes.plot(experiment.epochs, share, color=shade, linewidth=1.0, **point_marker(experiment.epochs))
        axes.plot(experiment.epochs, shares.mean(0), color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
        axes.set_title(title, fontsize=7.5, loc="left")
        axes.set_ylim(0, top)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    for axes in panels[len(members) :]:
        axes.set_visible(False)
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel("retained, % of units", fontsize=9)
    caption = (
        "The same by stage, a stage being what works at one resolution (or one block), named by its first group: a "
        "line for each of its groups, from the first (dark) to the last (light), and dashed their mean."
    )
    return ReportFigure(f"{prefix}stages", "Retained width of each stage", caption, figure)


# --- temperature ---


def _temperature(experiment: Experiment, prefix: str) -> ReportFigure | None:
    """The mean temperature of each group: of all its units, as the paper averages it, and of those that live."""
    live = _group_means(experiment, "temperature")
    if not len(live) or np.nanmax(live) == np.nanmin(live):
        return None
    every = _group_means(experiment, "temperature_with_absent")  # runs of an early version have none
    parts = [("all units", every), ("live units", live)] if len(every) else [("live units", live)]
    figure, panels = new_figure(1, len(parts), sharey=True)
    for axes, (title, values) in zip(panels, parts, strict=True):
        for row, shade in zip(values, _shades(len(values)), strict=True):
            axes.plot(experiment.epochs, row, color=shade, linewidth=1.1, **point_marker(experiment.epochs))
        label_epochs(axes, "")
        axes.set_title(title, loc="left")
    log_scale_if_wide(panels[0], [float(value) for _, values in parts for value in values[np.isfinite(values)]])
    panels[0].set_ylabel("temperature, mean of the group")
    scale = ScalarMappable(Normalize(1, max(2, len(live))), COLOUR_MAP)
    bar = figure.colorbar(scale, ax=panels, pad=0.02, aspect=30)
    bar.set_label("group, from input to output")
    bar.outline.set_visible(False)
    caption = (
        "The mean temperature of each group's units: it rises with the epochs a unit has lived, and the higher it is, "
        "the harder its gate. That of absent units stays where it was, so a group of which few units live stays low."
    )
    return ReportFigure(f"{prefix}temperature", "Temperature of each layer", caption, figure)


def _group_means(experiment: Experiment, key: str) -> FloatArray:
    """One row for each group that has a value, over the seeds."""
    columns = [experiment.column(key, name) for name in _groups(experiment)]
    return np.array([column.mean for column in columns if column.has_values])


# --- blocks ---


def _blocks(experiment: Experiment, prefix: str) -> ReportFigure | None:
    stages = [name for name in experiment.first.names("blocks") if experiment.column("blocks", name).has_values]
    if not stages:
        return None
    figure, panels = new_figure(3, 1, height=4.6, sharex=True)
    headline = headline_metric([experiment])
    if headline is not None:
        values = experiment.column("metrics", f"val_{headline.name}").times(headline.shown(1.0))
        if values.has_values:
            line(panels[0], experiment.epochs, values, SERIES[0], None)
        panels[0].set_ylabel(headline.title)
    for cost, colour in (("params", SERIES[1]), ("macs", SERIES[4])):
        line(panels[1], experiment.epochs, experiment.column(f"{cost}_frac").times(100), colour, cost)
    panels[1].set_ylabel("% of full")
    panels[1].set_ylim(bottom=0)
    panels[1].legend(loc="lower right", ncols=2, bbox_to_anchor=(1.0, 0.96), borderaxespad=0.0)
    below = np.zeros(len(experiment.epochs))
    for number, stage in enumerate(stages):
        count = np.nan_to_num(experiment.column("blocks", stage).mean)
        colour = SERIES[number % len(SERIES)]
        panels[2].fill_between(
            experiment.epochs, below, below + count, step="mid", color=colour, alpha=0.75, linewidth=0
        )
        _name_band(panels[2], experiment.epochs, below, count, shortened(stage, 14))
        below = below + count
    label_epochs(panels[2], "blocks", from_zero=True)
    panels[2].yaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    caption = (
        "Validation, complexity and depth together, as blocks come and go: each colour of the lowest panel is a stage, "
        "as high as it has blocks."
    )
    return ReportFigure(f"{prefix}blocks", "Blocks of each stage, with what they bring and cost", caption, figure)


def _name_band(axes: Axes, epochs: FloatArray, below: FloatArray, count: FloatArray, name: str) -> None:
    """Write the name of a stage into its band at the end of the run."""
    if count[-1] > 0:
        axes.text(
            epochs[-1],
            below[-1] + count[-1] / 2,
            f"{name}: {count[-1]:g} ",
            ha="right",
            va="center",
            fontsize=7,
            color=INK,
        )


# --- births and deaths ---


def _births(experiment: Experiment, prefix: str) -> ReportFigure | None:
    grown, restored, pruned = (np.nan_to_num(experiment.column(key).mean) for key in ("grown", "restored", "pruned"))
    if not (grown.any() or restored.any() or pruned.any()):
        return None
    figure, (axes,) = new_figure()
    edges = np.append(experiment.epochs - 0.5, experiment.epochs[-1] + 0.5)
    axes.stairs(grown, edges, fill=True, color=SERIES[2], label="born")
    axes.stairs(grown + restored, edges, baseline=grown, fill=True, color=SERIES[5], label="returned")
    axes.stairs(-pruned, edges, fill=True, color=SERIES[1], label="gone")
    axes.axhline(0, color=MUTED, linewidth=0.8)
    label_epochs(axes, "units")
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    legend(axes)
    caption = (
        "Units that changed after each epoch: above the line those born and those that came back with what they had "
        "learned, below it those that went."
    )
    return ReportFigure(f"{prefix}births", "Births, returns and deaths", caption, figure)
