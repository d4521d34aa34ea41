"""The look of figures, and how one becomes a file and a part of the page.

Figures are drawn in the colours of the light page. In the page these colours become variables, so that one figure
serves light and dark.
"""

from __future__ import annotations

import io
import math
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

from meristem_bench.report.page_text import legible

INK, MUTED, LINE, PAPER = "#22262e", "#687080", "#d8dce3", "#fdfdfd"
# The first seven are distinct for any kind of colour vision (after Okabe and Ito), without the yellow that is lost on
# white. Nine, because that many arms are all ablations of the paper beside the full model.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5c3e", "#5e3c99", "#8a8a00")
SERIES_DARK = ("#5db3ec", "#ff9052", "#35c99e", "#e7a4cb", "#f4b740", "#8ed2fa", "#c7a27c", "#b39ddb", "#c8c84a")
COLOURS = {INK: "--ink", MUTED: "--muted", LINE: "--line", **{c: f"--c{n}" for n, c in enumerate(SERIES)}}
COLOUR_MAP = "cividis"  # of shares: even in lightness, for any kind of colour vision
_DPI = 160
_FREE_ROWS, _LEGEND_ROW = 2, 0.18  # rows of a legend that every figure has room for, inches of each further one
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
    "image.cmap": COLOUR_MAP,
}


@dataclass(frozen=True)
class ReportFigure:
    """A matplotlib figure with the name of its file, its heading and its caption."""

    name: str
    title: str
    caption: str
    figure: Figure
    tall: bool = False  # as high as it needs to be, over the whole width of the page


def new_figure(rows: int = 1, columns: int = 1, height: float = _HEIGHT, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row; without pyplot, so that no global state changes."""
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, [axis for row in axes for axis in row]


def label_epochs(axes: Axes, label: str, from_zero: bool = False) -> None:
    """Epochs on the x axis, ``label`` on the y axis."""
    axes.set_xlabel("epoch")
    axes.set_ylabel(legible(label, 36))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if from_zero:
        axes.set_ylim(bottom=0)


def point_marker(points: Sized) -> dict[str, Any]:
    """The marker of a line of one point, which could not be seen without."""
    return {"marker": "o", "markersize": 4} if len(points) == 1 else {}


def log_scale_if_wide(axes: Axes, values: Sequence[float]) -> None:
    """Set a logarithmic scale where a linear one would press most values flat; its numbers are written plainly."""
    positive = [value for value in values if value > 0]
    if len(positive) < len(values) or not positive or max(positive) < 20 * min(positive):
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend(axes: Axes, most: int = len(SERIES) + 1) -> None:
    """Add a legend if there are several lines; below the axes, so that it covers nothing.

    The figure grows with a legend of many rows, which would otherwise take the height from the axes.
    """
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) < 2:
        return
    columns = 1 if max(map(len, labels)) > 34 else 2
    axes.legend(handles[:most], labels[:most], loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns)
    rows = math.ceil(min(len(labels), most) / columns)
    if rows > _FREE_ROWS and isinstance(axes.figure, Figure):
        axes.figure.set_figheight(axes.figure.get_figheight() + _LEGEND_ROW * (rows - _FREE_ROWS))


def svg(figure: ReportFigure) -> str:
    """The figure as SVG, drawn by its canvas: `savefig` would draw everything twice, first for its layout alone."""
    text = io.StringIO()
    with rc_context({**RC, "svg.hashsalt": figure.name}):
        FigureCanvasSVG(figure.figure).print_svg(text, metadata={"Date": None})  # type: ignore[no-untyped-call]
    figure.figure.set_layout_engine("none")  # everything has its place now: the PNG need not find it again
    return text.getvalue()


def png(figure: ReportFigure) -> bytes:
    content = io.BytesIO()
    figure.figure.set_dpi(_DPI)
    with rc_context(RC):
        FigureCanvasAgg(figure.figure).print_png(content)  # type: ignore[no-untyped-call]
    return content.getvalue()


def inline(text: str, figure: ReportFigure) -> str:
    """The SVG as a part of a page: no prologue, colours as variables, ids unique in the page, no fixed size."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1), count=1
    )
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(legible(figure.title))}" ', 1)
    prefix = figure.name
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(rf"fill: {PAPER}", "fill: none", text)
    for colour, variable in COLOURS.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")


def colours(count: int) -> Sequence[str]:
    return [SERIES[number % len(SERIES)] for number in range(count)]
