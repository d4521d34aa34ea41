"""How figures look, and how one becomes a file and a part of the page.

Figures are drawn in the colours of the light page. In the page these colours become variables, so that one drawing
serves light and dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from meristem_bench.report.reading import legible

INK, MUTED, LINE, PAPER = "#22262e", "#687080", "#d8dce3", "#fdfdfd"
# Told apart with any kind of colour vision (after Okabe and Ito), without the yellow that is lost on white.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5c3e")
SERIES_DARK = ("#5db3ec", "#ff9052", "#35c99e", "#e7a4cb", "#f4b740", "#8ed2fa", "#c7a27c")
COLOURS = {INK: "--ink", MUTED: "--muted", LINE: "--line", **{c: f"--c{n}" for n, c in enumerate(SERIES)}}
MAP = "cividis"  # of shares: even in lightness, and for all eyes
_DPI = 160
_WIDTH, _HEIGHT = 4.9, 2.9  # inches: small enough for text to be read when a phone shows the whole width

RC: Any = {  # matplotlib types its keys one by one
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "text.usetex": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.7,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": "none",
    "svg.fonttype": "none",
    "image.cmap": MAP,
}


@dataclass(frozen=True)
class Drawing:
    """A figure with its name among the files, its heading and the sentence that explains it."""

    name: str
    title: str
    sentence: str
    figure: Figure
    tall: bool = False  # is as high as it needs to be, and gets the width of the page


def canvas(rows: int = 1, columns: int = 1, height: float = _HEIGHT, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row. Made without pyplot: nothing outside it is touched."""
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, [axis for row in axes for axis in row]


def by_epoch(axes: Axes, label: str, from_zero: bool = False) -> None:
    axes.set_xlabel("epoch")
    axes.set_ylabel(legible(label, 36))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if from_zero:
        axes.set_ylim(bottom=0)


def alone(points: Sized) -> dict[str, Any]:
    """A line of one point cannot be seen: it gets a mark."""
    return {"marker": "o", "markersize": 4} if len(points) == 1 else {}


def wide_range(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic scale where a linear one would press most of the values flat; its numbers are written plainly."""
    known = [value for value in values if value > 0]
    if len(known) < len(values) or not known or max(known) < 20 * min(known):
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend(axes: Axes, most: int = 8) -> None:
    """Only where there is something to tell apart; below the axes, so that it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        columns = 1 if max(map(len, labels)) > 34 else 2
        axes.legend(handles[:most], labels[:most], loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns)


def shortened(name: str, most: int = 22) -> str:
    """
    >>> shortened("stages.0.0.conv1"), shortened("encoder.layers.10.attention.self", 20)
    ('stages.0.0.conv1', '…s.10.attention.self')
    """
    name = legible(name)
    return name if len(name) <= most else "…" + name[-(most - 1) :]


def file_name(name: str) -> str:
    """
    >>> file_name("accuracy"), file_name("../F1 (macro)"), file_name("точность")
    ('accuracy', 'F1-macro', 'metric')
    """
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:40] or "metric"


def svg(drawing: Drawing) -> str:
    """Drawn through the canvas itself: `savefig` would draw everything twice, the first time for its layout alone."""
    held = io.StringIO()
    with rc_context({**RC, "svg.hashsalt": drawing.name}):
        FigureCanvasSVG(drawing.figure).print_svg(held, metadata={"Date": None})  # type: ignore[no-untyped-call]
    drawing.figure.set_layout_engine("none")  # everything has its place now: what comes next need not find it again
    return held.getvalue()


def png(drawing: Drawing) -> bytes:
    held = io.BytesIO()
    drawing.figure.set_dpi(_DPI)
    with rc_context(RC):
        FigureCanvasAgg(drawing.figure).print_png(held)  # type: ignore[no-untyped-call]
    return held.getvalue()


def inline(text: str, drawing: Drawing) -> str:
    """The SVG as a part of a page: no prologue, colours as variables, ids that meet no others, its size left open."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1), count=1
    )
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(legible(drawing.title))}" ', 1)
    mark = drawing.name
    text = re.sub(r'\bid="([^"]+)"', rf'id="{mark}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{mark}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{mark}-\1"', text)
    text = re.sub(rf"fill: {PAPER}", "fill: none", text)
    for colour, variable in COLOURS.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")


def colours(count: int) -> Sequence[str]:
    return [SERIES[number % len(SERIES)] for number in range(count)]
