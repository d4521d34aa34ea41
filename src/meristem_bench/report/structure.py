"""What became of the units of one experiment: widths, temperatures, blocks, births and deaths, epoch by epoch."""

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

from meristem_bench.report.bundles import Bundle
from meristem_bench.report.curves import judged_by, line
from meristem_bench.report.reading import FloatArray, Shown
from meristem_bench.report.style import (
    INK,
    MAP,
    MUTED,
    SERIES,
    Drawing,
    alone,
    by_epoch,
    canvas,
    legend,
    shortened,
    wide_range,
)

_MOST_LABELS = 26  # names beside a picture, before they run into each other
_MOST_PANELS = 8


def structure_drawings(bundle: Bundle, mark: str = "") -> Iterator[Drawing]:
    """``mark`` goes into the names of the files where several experiments are shown."""
    for draw in (_widths, _stages, _blocks, _births, _temperature):
        drawing = draw(bundle, mark)
        if drawing is not None:
            yield drawing


def _mean(bundle: Bundle, groups: Sequence[str]) -> FloatArray:
    """The retained share of each group (row) at each epoch (column), over the seeds."""
    return np.array([bundle.column("widths", name).mean / max(bundle.first.full[name], 1.0) for name in groups])


def _groups(bundle: Bundle) -> list[str]:
    """Those of all runs, so that a run that knows fewer spoils nothing."""
    return [name for name in bundle.first.width_groups if all(name in run.full for run in bundle.runs)]


def _edges(epochs: FloatArray) -> tuple[float, float]:
    return float(epochs[0]) - 0.5, float(epochs[-1]) + 0.5


# --- widths ---


def _widths(bundle: Bundle, mark: str) -> Drawing | None:
    groups = _groups(bundle)
    if not groups:
        return None
    shares = 100 * _mean(bundle, groups)
    figure, (axes,) = canvas(height=float(np.clip(0.9 + 0.15 * len(groups), 2.4, 5.2)))
    left, right = _edges(bundle.epochs)
    extent = (left, right, len(groups) - 0.5, -0.5)
    top = _top(shares)
    image = axes.imshow(shares, aspect="auto", extent=extent, vmin=0, vmax=top, cmap=MAP, interpolation="none")
    _name_rows(axes, groups)
    axes.grid(visible=False)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=30)
    bar.set_label("retained, % of its units")
    bar.outline.set_visible(False)
    sentence = (
        f"Every row is one of the {len(groups)} groups of units, from input to output; the lighter, the more of its "
        f"units are live."
    )
    return Drawing(f"{mark}widths", "Retained width of each layer", sentence, figure)


def _top(shares: FloatArray) -> float:
    """The end of a scale of percents: all there is, or for networks that stay narrow the next round number."""
    most = float(np.nan_to_num(shares).max(initial=0.0))
    return 100.0 if most > 50 else max(10.0, 10.0 * math.ceil(most / 10))


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    every = -(-len(names) // _MOST_LABELS)
    rows = range(0, len(names), every)
    axes.set_yticks(list(rows), [shortened(names[row]) for row in rows], fontsize=7)


def stage_members(run: Shown, groups: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Groups by the stage of the network in which they are first made; long networks in a few runs of stages."""
    if run.outline is None:
        return []
    makers = {group["name"]: group["makers"] for group in run.outline["groups"]}
    stages = {layer["module"]: int(layer["stage"]) for layer in run.outline["layers"]}
    found: dict[int, list[str]] = {}
    for name in groups:
        stage = next((stages[maker] for maker in makers.get(name, ()) if maker in stages), None)
        if stage is not None:
            found.setdefault(stage, []).append(name)
    members = [found[stage] for stage in sorted(found)]
    together = max(1, -(-len(members) // _MOST_PANELS))
    joined = [list(chain(*members[at : at + together])) for at in range(0, len(members), together)]
    return [(f"{number}: {shortened(names[0], 17)} …", names) for number, names in enumerate(joined, 1)]


def _stages(bundle: Bundle, mark: str) -> Drawing | None:
    members = stage_members(bundle.first, _groups(bundle))
    if len(members) < 2:
        return None
    columns = 2 if len(members) in (2, 4) else 3
    top = _top(100 * _mean(bundle, [name for _, names in members for name in names]))
    rows = -(-len(members) // columns)
    figure, panels = canvas(rows, columns, height=max(2.2, 0.7 + 1.3 * rows), sharex=True, sharey=True)
    for number, (axes, (title, names)) in enumerate(zip(panels, members, strict=False)):
        shares = 100 * _mean(bundle, names)
        colour = SERIES[number % len(SERIES)]
        axes.fill_between(bundle.epochs, shares.min(0), shares.max(0), color=colour, alpha=0.22, linewidth=0)
        axes.plot(bundle.epochs, shares.mean(0), color=colour, **alone(bundle.epochs))
        axes.set_title(title, fontsize=7.5, loc="left")
        axes.set_ylim(0, top)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    for axes in panels[len(members) :]:
        axes.set_visible(False)
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel("retained, % of units", fontsize=9)
    sentence = (
        "The same by stage, a stage being what works at one resolution (or one block), named by its first group: the "
        "mean of its groups, and the band from the narrowest to the widest."
    )
    return Drawing(f"{mark}stages", "Retained width of each stage", sentence, figure)


# --- temperature ---


def _temperature(bundle: Bundle, mark: str) -> Drawing | None:
    groups = [name for name in _groups(bundle) if bundle.column("temperature", name).known]
    values = np.array([bundle.column("temperature", name).mean for name in groups])
    if not groups or np.nanmax(values) == np.nanmin(values):
        return None
    figure, (axes,) = canvas()
    shades = colormaps[MAP](np.linspace(0.05, 0.95, len(groups)))
    for row, shade in zip(values, shades, strict=True):
        axes.plot(bundle.epochs, row, color=shade, linewidth=1.1, **alone(bundle.epochs))
    wide_range(axes, [float(value) for value in values[np.isfinite(values)]])
    by_epoch(axes, "temperature, mean of live units")
    bar = figure.colorbar(ScalarMappable(Normalize(1, max(2, len(groups))), MAP), ax=axes, pad=0.02, aspect=30)
    bar.set_label("group, from input to output")
    bar.outline.set_visible(False)
    sentence = (
        "The mean temperature of each group's live units: it rises with the epochs a unit has lived, and the higher it "
        "is, the harder its gate."
    )
    return Drawing(f"{mark}temperature", "Temperature of each layer", sentence, figure)


# --- blocks ---


def _blocks(bundle: Bundle, mark: str) -> Drawing | None:
    stages = [name for name in bundle.first.names("blocks") if bundle.column("blocks", name).known]
    if not stages:
        return None
    figure, panels = canvas(3, 1, height=4.6, sharex=True)
    shown = judged_by([bundle])
    if shown is not None:
        values = bundle.column("metrics", f"val_{shown.name}").times(shown.shown(1.0))
        if values.known:
            line(panels[0], bundle.epochs, values, SERIES[0], None)
        panels[0].set_ylabel(shown.title)
    for cost, colour in (("params", SERIES[1]), ("macs", SERIES[4])):
        line(panels[1], bundle.epochs, bundle.column(f"{cost}_frac").times(100), colour, cost)
    panels[1].set_ylabel("% of full")
    panels[1].set_ylim(bottom=0)
    panels[1].legend(loc="lower right", ncols=2, bbox_to_anchor=(1.0, 0.96), borderaxespad=0.0)
    below = np.zeros(len(bundle.epochs))
    for number, stage in enumerate(stages):
        count = np.nan_to_num(bundle.column("blocks", stage).mean)
        colour = SERIES[number % len(SERIES)]
        panels[2].fill_between(bundle.epochs, below, below + count, step="mid", color=colour, alpha=0.75, linewidth=0)
        _inside(panels[2], bundle.epochs, below, count, shortened(stage, 14))
        below = below + count
    by_epoch(panels[2], "blocks", from_zero=True)
    panels[2].yaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    sentence = (
        "Validation, complexity and depth together, as blocks come and go: each colour of the lowest panel is a stage, "
        "as high as it has blocks."
    )
    return Drawing(f"{mark}blocks", "Blocks of each stage, with what they bring and cost", sentence, figure)


def _inside(axes: Axes, epochs: FloatArray, below: FloatArray, count: FloatArray, name: str) -> None:
    """The name of a stage, within its band at the end of the run."""
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


def _births(bundle: Bundle, mark: str) -> Drawing | None:
    grown, restored, detached = (np.nan_to_num(bundle.column(key).mean) for key in ("grown", "restored", "pruned"))
    if not (grown.any() or restored.any() or detached.any()):
        return None
    figure, (axes,) = canvas()
    edges = np.append(bundle.epochs - 0.5, bundle.epochs[-1] + 0.5)
    axes.stairs(grown, edges, fill=True, color=SERIES[2], label="born")
    axes.stairs(grown + restored, edges, baseline=grown, fill=True, color=SERIES[5], label="returned")
    axes.stairs(-detached, edges, fill=True, color=SERIES[1], label="gone")
    axes.axhline(0, color=MUTED, linewidth=0.8)
    by_epoch(axes, "units")
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    legend(axes)
    sentence = (
        "Units that changed after each epoch: above the line those born and those that came back with what they had "
        "learned, below it those that went."
    )
    return Drawing(f"{mark}births", "Births, returns and deaths", sentence, figure)
