"""From run folders to a page and figure files."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context

from meristem.errors import FileError
from meristem.io.atomic import replace_file
from meristem_bench.report.architecture import architecture_drawing
from meristem_bench.report.bundles import Bundle, bundled
from meristem_bench.report.curves import curve_drawings, judged_by
from meristem_bench.report.page import Picture, Section, Table, page
from meristem_bench.report.reading import FloatArray, legible, read_runs
from meristem_bench.report.structure import structure_drawings
from meristem_bench.report.style import RC, SERIES, Drawing, inline, png, svg
from meristem_bench.report.tradeoff import tradeoff_drawings
from meristem_bench.show.formatting import blocks_text, mean_and_deviation

_MOST_IN_DETAIL = 4  # experiments whose structure is drawn; more would bury the comparison


@dataclass(frozen=True)
class Report:
    """What was written."""

    page: Path
    figures: tuple[Path, ...]
    remarks: tuple[str, ...]


def write_report(runs: Sequence[Path], out: Path) -> Report:
    """Draw the runs in these folders, or below them, into ``out``: ``report.html`` and ``figures``."""
    left_out: list[str] = []
    bundles = bundled(read_runs(runs, left_out))
    remarks = tuple(legible(remark) for remark in (*left_out, *_remarks(bundles)))
    files: list[Path] = []
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        with rc_context(RC), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # a browser has it, a PNG shows a box
            sections = [
                Section(title, tuple(_kept(part, out, files) for part in parts), folded)
                for title, parts, folded in _content(bundles)
                if parts
            ]
        text = page(_title(bundles), _about(bundles), remarks, sections)
        _write(out / "report.html", text.encode())
    except OSError as error:
        raise FileError(f"the report cannot be written to {out} ({error.strerror}); give another --out") from None
    return Report(out / "report.html", tuple(files), remarks)


def _kept(part: Drawing | Table, out: Path, files: list[Path]) -> Picture | Table:
    """A drawing goes into the page and beside it."""
    if isinstance(part, Table):
        return part
    while out / "figures" / f"{part.name}.svg" in files:  # a metric that is named as another figure
        part = dataclasses.replace(part, name=f"{part.name}-2")
    text = svg(part)
    for ending, content in (("svg", text.encode()), ("png", png(part))):
        path = out / "figures" / f"{part.name}.{ending}"
        _write(path, content)
        files.append(path)
    return Picture(part.name, part.title, part.sentence, inline(text, part), part.tall)


def _write(path: Path, content: bytes) -> None:
    replace_file(path, lambda beside: beside.write_bytes(content))


# --- what stands where ---


def _content(bundles: Sequence[Bundle]) -> Iterator[tuple[str, list[Drawing | Table], bool]]:
    compared = len(bundles) > 1
    outcome: list[Drawing | Table] = [table] if (table := _results(bundles)) else []
    yield "What came out", [*outcome, *tradeoff_drawings(bundles)], False
    yield "How it went", list(curve_drawings(bundles)), False
    detailed = _detailed(bundles)
    for number, bundle in enumerate(detailed[:_MOST_IN_DETAIL], 1):
        mark = f"{number}-" if len(detailed) > 1 else ""
        parts: list[Drawing | Table] = list(structure_drawings(bundle, mark))
        drawing, table = architecture_drawing(bundle, mark), _groups(bundle)
        parts += [part for part in (drawing, table) if part is not None]
        yield f"What grew: {bundle.title}" if compared else "What grew", parts, number > 1


def _detailed(bundles: Sequence[Bundle]) -> list[Bundle]:
    """Those of which something grew."""
    return [bundle for bundle in bundles if bundle.first.method != "dense" and bundle.first.records]


def _title(bundles: Sequence[Bundle]) -> str:
    names = list(dict.fromkeys(run.name for bundle in bundles for run in bundle.runs))
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def _about(bundles: Sequence[Bundle]) -> str:
    runs = [run for bundle in bundles for run in bundle.runs]
    if len(runs) > 1:
        return f"{len(runs)} runs of {len(bundles)} experiment{'s' * (len(bundles) > 1)}."
    settings = runs[0].settings
    told = ("method", "budget", "seed", "epochs", "fine_tune", "batch", "lr")
    keys = [key for key in told if settings.get(key) or (key == "seed" and settings.get(key) is not None)]
    words = [f"{key} {legible(str(settings[key]), 60)}" for key in keys]
    return ", ".join(words) + "." if words else runs[0].folder


def _remarks(bundles: Sequence[Bundle]) -> Iterator[str]:
    runs = [run for bundle in bundles for run in bundle.runs]
    folders = [run.folder for run in runs]
    for run in runs:
        where = run.folder if folders.count(run.folder) == 1 else str(run.path)
        for sentence in run.missing:
            yield f"{where}: {sentence}" if len(runs) > 1 else sentence
    for bundle in bundles:
        seeds = [str(run.seed) for run in bundle.runs]
        if len(set(seeds)) < len(seeds):
            yield f"{bundle.title}: some of its {len(seeds)} runs have the same seed; each of them is counted."
    if len(bundles) > len(SERIES):
        yield f"Of {len(bundles)} experiments some have the same colour, and legends name the first; give fewer runs."
    detailed = _detailed(bundles)
    if len(detailed) > _MOST_IN_DETAIL:
        yield (
            f"What grew is drawn for the first {_MOST_IN_DETAIL} of {len(detailed)} experiments; "
            f"give fewer runs to see the others."
        )


def _results(bundles: Sequence[Bundle]) -> Table | None:
    shown = judged_by(bundles)
    finished = [bundle for bundle in bundles if len(bundle.finals("params_frac"))]
    if shown is None or not finished:
        return None
    columns: list[tuple[str, list[str]]] = [
        ("", [bundle.title for bundle in finished]),
        ("seeds", [str(len(bundle.finals("params_frac"))) for bundle in finished]),
        (f"test {shown.title}", [_spread(shown.shown(1.0) * each.finals("test", shown.name), 2) for each in finished]),
        ("parameters", [_count(bundle.finals("params")) for bundle in finished]),
        ("% of full", [_spread(100 * bundle.finals("params_frac"), 1) for bundle in finished]),
        ("macs, %", [_spread(100 * bundle.finals("macs_frac"), 1) for bundle in finished]),
        ("spend, %", [_spread(100 * bundle.finals("spend_frac"), 1) for bundle in finished]),
        ("with growing, %", [_spread(100 * bundle.spends, 1) for bundle in finished]),
        ("minutes", [_spread(bundle.finals("seconds") / 60, 1) for bundle in finished]),
        ("blocks", [_blocks_of(bundle) for bundle in finished]),
    ]
    if columns[7][1] == columns[6][1]:  # nothing was grown before to be trained from scratch
        del columns[7]
    told = [column for column in columns if any(column[1])]
    sentence = (
        "The final networks, on the test data; ± is the deviation over seeds. Shares are of the full model, spend is "
        "of its training."
    )
    rows = tuple(zip(*(texts for _, texts in told), strict=True))
    return Table("Results", sentence, tuple(title for title, _ in told), rows)


def _spread(values: FloatArray, digits: int) -> str:
    known = [float(value) for value in values if np.isfinite(value)]
    return mean_and_deviation(known, digits) if known else "not known"


def _count(values: FloatArray) -> str:
    known = values[np.isfinite(values)]
    return f"{known.mean():,.0f}" if len(known) else "not known"


def _blocks_of(bundle: Bundle) -> str:
    found = [(run.result or {}).get("blocks") for run in bundle.runs]
    return " / ".join(dict.fromkeys(blocks_text(blocks) for blocks in found if isinstance(blocks, dict) and blocks))


def _groups(bundle: Bundle) -> Table | None:
    run = bundle.first
    if not run.records or not run.names("widths"):
        return None
    about = {group["name"]: group for group in (run.outline or {}).get("groups", ())}
    rows = []
    for name, full in run.full.items():
        widths = run.column("widths", name)
        widths = widths[np.isfinite(widths)]
        if not len(widths):
            continue
        group = about.get(name, {})
        params = f"{100 * group['params_frac']:.1f}" if "params_frac" in group else ""
        numbers = (
            f"{widths[0]:g}",
            f"{widths.max():g}",
            f"{widths[-1]:g}",
            f"{full:g}",
            f"{100 * widths[-1] / full:.0f}",
        )
        rows.append((name, str(group.get("kind", "")), *numbers, params))
    head = ("group", "kind", "first", "most", "last", "full", "last, %", "share of parameters, %")
    seed = f" of seed {run.seed}" if len(bundle.runs) > 1 else ""
    sentence = (
        f"Every group of units{seed}: how many were live in the first epoch, at most, and in the last, and how many "
        f"the full model has."
    )
    return Table("Groups", sentence, head, tuple(rows), words=2)
