"""Writes the report of run folders: one page, and its figures as files."""

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
from meristem_bench.report.architecture_figure import architecture_figure
from meristem_bench.report.curve_figures import curve_figures, headline_metric
from meristem_bench.report.experiments import Experiment, group_by_experiment, spread
from meristem_bench.report.figure_style import RC, SERIES, ReportFigure, inline, png, svg
from meristem_bench.report.page import PageFigure, Section, Table, page
from meristem_bench.report.page_text import legible
from meristem_bench.report.reported_run import FloatArray
from meristem_bench.report.run_reader import read_runs
from meristem_bench.report.structure_figures import structure_figures
from meristem_bench.report.tradeoff_figures import tradeoff_figures
from meristem_bench.runs.task_metric import TaskMetric
from meristem_bench.show.formatting import blocks_text, count_text, mean_and_deviation, savings_text

_MOST_IN_DETAIL = 6  # experiments whose structure is drawn; more would bury the comparison


@dataclass(frozen=True)
class Report:
    """The files that were written, and sentences about what is missing."""

    page: Path
    figures: tuple[Path, ...]
    remarks: tuple[str, ...]


def write_report(runs: Sequence[Path], out: Path) -> Report:
    """Draw the runs in these folders, or below them, into ``out``: ``report.html`` and ``figures``."""
    unreadable: list[str] = []
    experiments = group_by_experiment(read_runs(runs, unreadable))
    remarks = tuple(legible(remark) for remark in (*unreadable, *_remarks(experiments)))
    files: list[Path] = []
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        with rc_context(RC), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # a browser has it, a PNG shows a box
            sections = [
                Section(title, tuple(_written(part, out, files) for part in parts), folded)
                for title, parts, folded in _content(experiments)
                if parts
            ]
        text = page(_title(experiments), _about(experiments), remarks, sections)
        _write(out / "report.html", text.encode())
    except OSError as error:
        raise FileError(f"the report cannot be written to {out} ({error.strerror}); give another --out") from None
    return Report(out / "report.html", tuple(files), remarks)


def _written(part: ReportFigure | Table, out: Path, files: list[Path]) -> PageFigure | Table:
    """The part as it stands in the page; a figure is also written to files."""
    if isinstance(part, Table):
        return part
    while out / "figures" / f"{part.name}.svg" in files:  # a metric that has the name of another figure
        part = dataclasses.replace(part, name=f"{part.name}-2")
    text = svg(part)
    for ending, content in (("svg", text.encode()), ("png", png(part))):
        path = out / "figures" / f"{part.name}.{ending}"
        _write(path, content)
        files.append(path)
    return PageFigure(part.name, part.title, part.caption, inline(text, part), part.tall)


def _write(path: Path, content: bytes) -> None:
    replace_file(path, lambda beside: beside.write_bytes(content))


# --- what stands where ---


def _content(experiments: Sequence[Experiment]) -> Iterator[tuple[str, list[ReportFigure | Table], bool]]:
    compared = len(experiments) > 1
    outcome: list[ReportFigure | Table] = [table] if (table := _results(experiments)) else []
    yield "What came out", [*outcome, *tradeoff_figures(experiments)], False
    yield "How it went", list(curve_figures(experiments)), False
    detailed = _detailed(experiments)
    for number, experiment in enumerate(detailed[:_MOST_IN_DETAIL], 1):
        prefix = f"{number}-" if len(detailed) > 1 else ""
        parts: list[ReportFigure | Table] = list(structure_figures(experiment, prefix))
        architecture, table = architecture_figure(experiment, prefix), _groups(experiment)
        parts += [part for part in (architecture, table) if part is not None]
        yield f"What grew: {experiment.title}" if compared else "What grew", parts, number > 1


def _detailed(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The experiments but the full model, those whose network has changed first."""
    smaller = [each for each in experiments if not each.first.is_full_model and each.first.records]
    return sorted(smaller, key=lambda each: not _changed(each))


def _changed(experiment: Experiment) -> bool:
    widths = [experiment.column("widths", name).mean for name in experiment.first.names("widths")]
    return any(np.nanmin(column) < np.nanmax(column) for column in widths if np.isfinite(column).any())


def _title(experiments: Sequence[Experiment]) -> str:
    names = list(dict.fromkeys(run.name for experiment in experiments for run in experiment.runs))
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def _about(experiments: Sequence[Experiment]) -> str:
    runs = [run for experiment in experiments for run in experiment.runs]
    if len(runs) > 1:
        return f"{len(runs)} runs of {len(experiments)} experiment{'s' * (len(experiments) > 1)}."
    settings = runs[0].settings
    lengths = () if runs[0].at_equal_cost else ("epochs", "fine_tune")  # of a run at equal cost they are others
    named = ("method", "budget", "seed", *lengths, "batch", "lr")
    keys = [key for key in named if settings.get(key) or (key == "seed" and settings.get(key) is not None)]
    words = [f"{key} {legible(str(settings[key]), 60)}" for key in keys]
    return ", ".join(words) + "." if words else runs[0].folder


def _remarks(experiments: Sequence[Experiment]) -> Iterator[str]:
    runs = [run for experiment in experiments for run in experiment.runs]
    folders = [run.folder for run in runs]
    for run in runs:
        where = run.folder if folders.count(run.folder) == 1 else str(run.path)
        for sentence in run.missing:
            yield f"{where}: {sentence}" if len(runs) > 1 else sentence
    for experiment in experiments:
        seeds = [str(run.seed) for run in experiment.runs]
        if len(set(seeds)) < len(seeds):
            yield f"{experiment.title}: some of its {len(seeds)} runs have the same seed; each of them is counted."
    if len(experiments) > len(SERIES):
        count = len(experiments)
        yield f"Of {count} experiments some have the same colour, and legends name the first; give fewer runs."
    detailed = _detailed(experiments)
    if len(detailed) > _MOST_IN_DETAIL:
        yield (
            f"What grew is drawn for the first {_MOST_IN_DETAIL} of {len(detailed)} experiments; "
            f"give fewer runs to see the others."
        )


def _results(experiments: Sequence[Experiment]) -> Table | None:
    headline = headline_metric(experiments)
    finished = [experiment for experiment in experiments if len(experiment.finals("params_frac"))]
    if headline is None or not finished:
        return None
    columns: list[tuple[str, list[str]]] = [
        ("", [experiment.title for experiment in finished]),
        ("seeds", [str(len(experiment.finals("params_frac"))) for experiment in finished]),
        (f"test {headline.title}", _scores(finished, headline)),
        ("parameters", [_params(experiment) for experiment in finished]),
        ("macs, %", [_spread(100 * experiment.finals("macs_frac"), 1) for experiment in finished]),
        ("savings", [_savings(experiment.finals("spend_frac")) for experiment in finished]),
        ("with growing", [_savings(experiment.spends) for experiment in finished]),
        ("minutes", [_spread(experiment.finals("seconds") / 60, 1) for experiment in finished]),
        ("blocks", [_blocks_of(experiment) for experiment in finished]),
    ]
    if columns[6][1] == columns[5][1]:  # no run trains a network from scratch that another run has grown
        del columns[6]
    filled = [column for column in columns if any(column[1])]
    caption = (
        "The final networks, on the test data; ± is the deviation over seeds. Shares are of the full model; in "
        "brackets after a score is its change from the full model's; savings: how many times less training has cost."
    )
    rows = tuple(zip(*(texts for _, texts in filled), strict=True))
    return Table("Results", caption, tuple(title for title, _ in filled), rows)


def _spread(values: FloatArray, digits: int) -> str:
    finite = [float(value) for value in values if np.isfinite(value)]
    return mean_and_deviation(finite, digits) if finite else "not known"


def _scores(finished: Sequence[Experiment], metric: TaskMetric) -> list[str]:
    """The test metric of every experiment, with its change from the full model of the same name if that is there."""
    values = [metric.shown(1.0) * experiment.finals("test", metric.name) for experiment in finished]
    means = [float(spread(each).mean) for each in values]
    full = {each.first.name: mean for each, mean in zip(finished, means, strict=True) if each.first.is_reference}
    changes = [mean - full.get(each.first.name, np.nan) for each, mean in zip(finished, means, strict=True)]
    return [
        f"{_spread(each, metric.digits)}{f' ({change:+.{metric.digits}f})' if np.isfinite(change) else ''}"
        for each, change in zip(values, changes, strict=True)
    ]


def _params(experiment: Experiment) -> str:
    counts, shares = (experiment.finals(key) for key in ("params", "params_frac"))
    known = [float(count) for count in counts if np.isfinite(count)]
    return f"{count_text(known)} ({_spread(100 * shares, 1)} %)" if known else "not known"


def _savings(spends: FloatArray) -> str:
    known = [1 / float(spend) for spend in spends if np.isfinite(spend) and spend > 0]
    return savings_text(known) if known else "not known"


def _blocks_of(experiment: Experiment) -> str:
    per_run = [(run.result or {}).get("blocks") for run in experiment.runs]
    return " / ".join(dict.fromkeys(blocks_text(blocks) for blocks in per_run if isinstance(blocks, dict) and blocks))


def _groups(experiment: Experiment) -> Table | None:
    run = experiment.first
    if not run.records or not run.names("widths"):
        return None
    outlines = {group["name"]: group for group in (run.outline or {}).get("groups", ())}
    rows = []
    for name, full in run.full.items():
        widths = run.column("widths", name)
        widths = widths[np.isfinite(widths)]
        if not len(widths):
            continue
        group = outlines.get(name, {})
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
    seed = f" of seed {run.seed}" if len(experiment.runs) > 1 else ""
    caption = (
        f"Every group of units{seed}: how many were live in the first epoch, at most, and in the last, and how many "
        f"the full model has."
    )
    return Table("Groups", caption, head, tuple(rows), words=2)
