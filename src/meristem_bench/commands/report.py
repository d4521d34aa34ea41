"""``meristem report``: runs as one page and figures."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
from pathlib import Path

from meristem.errors import MeristemError


def write(args: argparse.Namespace) -> int:
    runs = [Path(run) for run in args.runs]
    out = Path(args.out) if args.out else runs[0] if len(runs) == 1 else Path("report")
    print(_write(runs, out))
    return 0


def write_report_into(folder: Path) -> str:
    """Write the report of what lies in ``folder`` into it; returns what to print."""
    return _write([folder], folder)


def report_hint(folder: Path) -> str:
    return f"To draw it: meristem report {shlex.quote(str(folder))}"


def require_matplotlib() -> None:
    """Refuse before a long run what could only fail at its end."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MeristemError("drawing needs matplotlib; install it by: pip install 'meristem[report]'")


def _write(runs: list[Path], out: Path) -> str:
    require_matplotlib()
    from meristem_bench.report.page_text import legible
    from meristem_bench.report.report import write_report

    report = write_report(runs, out)
    notes = [f"note: {remark}" for remark in report.remarks]
    figures = f"{len(report.figures) // 2} figures as PNG and SVG in {out / 'figures'}"
    return "\n".join([*notes, legible(f"The report is {report.page}, with {figures}")])
