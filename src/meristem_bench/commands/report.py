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
    print(_written(runs, out))
    return 0


def drawn(folder: Path) -> str:
    """Draw what lies in ``folder``, into it; what is to be said of it."""
    return _written([folder], folder)


def how_to_draw(folder: Path) -> str:
    return f"To draw it: meristem report {shlex.quote(str(folder))}"


def check_drawing() -> None:
    """Refuses at once what could only be refused at the end of a long run."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MeristemError("drawing needs matplotlib; install it by: pip install 'meristem[report]'")


def _written(runs: list[Path], out: Path) -> str:
    check_drawing()
    from meristem_bench.report.page_text import legible
    from meristem_bench.report.report import write_report

    report = write_report(runs, out)
    notes = [f"note: {remark}" for remark in report.remarks]
    figures = f"{len(report.figures) // 2} figures as PNG and SVG in {out / 'figures'}"
    return "\n".join([*notes, legible(f"The report is {report.page}, with {figures}")])
