"""Imports go downward only.

A unit is a module or subpackage directly under `meristem`, or the second package `meristem_bench.recipes`. Imports
are read from the syntax tree, so one inside a function or under TYPE_CHECKING counts like any other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

# From the bottom up; a unit may import from the layers below its own. It need not exist yet.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("files", "gate", "schedule", "init", "nesting", "nearest"),
    ("space",),
    ("cost", "process"),
    ("trace", "surgery", "control"),
    ("history", "export", "checkpoint"),
    ("grower",),
    ("testing", "models", "data", "rates", "task", "settings", "folder", "metric", "tables"),
    ("picture", "screen", "sketch"),
    ("baselines",),
    ("run", "report"),
    ("training",),
    ("loop", "study"),
    ("progress", "board"),
    ("commands",),
    ("cli", "__main__"),
    ("meristem_bench.recipes",),
)
LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}

# Reading, acting and deciding know nothing of each other. Other neighbours may meet, but never in a circle.
STRANGERS = frozenset({"trace", "surgery", "control"})
# The bench side uses the core and is never used by it; models and data do not even use the core.
BENCH = frozenset(
    {
        *("models", "data", "rates", "task", "settings", "folder", "metric", "tables", "baselines"),
        *("picture", "screen", "sketch"),
        *(
            "run",
            "report",
            "training",
            "loop",
            "study",
            "progress",
            "board",
            "commands",
            "cli",
            "__main__",
            "meristem_bench.recipes",
        ),
    }
)
STANDALONE = frozenset({"models", "data"})
# `meristem/__init__.py`: shows the core to users. The core itself imports from the files, not from the front.
FRONT = "__init__"
CORE_THIRD_PARTY = frozenset({"torch", "numpy", "safetensors"})
PLOTTING = frozenset({"matplotlib", "seaborn", "plotly"})


def unit_files(src: Path) -> dict[str, list[Path]]:
    """Every unit found under `src`, with its Python files."""
    units: dict[str, list[Path]] = {}
    for path in sorted(src.rglob("*.py")):
        package, *inner = path.relative_to(src).with_suffix("").parts
        units.setdefault(inner[0] if package == "meristem" else package, []).append(path)
    return units


def imported_modules(path: Path, src: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything `path` imports; `from a import b` gives `a.b`."""
    package = path.relative_to(src).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{prefix}.{alias.name}") for alias in node.names)


def complaint(unit: str, target: str, known: set[str]) -> str | None:
    """Why `unit` may not import the dotted name `target`, or None if it may."""
    top = target.partition(".")[0]
    if top not in {"meristem", "meristem_bench.recipes"}:
        if unit not in BENCH and top not in CORE_THIRD_PARTY | sys.stdlib_module_names:
            return f"the core imports only the standard library and {', '.join(sorted(CORE_THIRD_PARTY))}"
        return "plotting belongs in report" if top in PLOTTING and unit != "report" else None
    other = imported_unit(target, known)
    if other == unit:
        return None
    if unit in STANDALONE:
        return f"{unit} imports nothing of meristem"
    if unit == FRONT:
        return "the front shows the core, not the bench side" if other in BENCH else None
    if other == FRONT:
        return None if unit in BENCH else "the core imports from the file that defines a name, not from the front"
    if other in BENCH and unit not in BENCH:
        return "the core never imports the bench side"
    if {unit, other} <= STRANGERS:
        return f"{' | '.join(sorted(STRANGERS))} never import each other"
    return f"{other} lies above {unit}" if LEVEL[other] > LEVEL[unit] else None


def imported_unit(target: str, known: set[str]) -> str:
    """The unit a dotted name lies in; a name defined by `meristem/__init__.py` lies in the front."""
    top, _, rest = target.partition(".")
    name = rest.partition(".")[0] if top == "meristem" else top
    return name if name in known else FRONT


def violations(src: Path) -> list[str]:
    """All that is wrong under `src`, one line each, with file and line."""
    units = unit_files(src)
    unassigned = sorted(units.keys() - LEVEL.keys() - {FRONT})
    if unassigned:
        return [f"{units[unit][0].relative_to(src)}: {unit} has no layer; give it one in LAYERS" for unit in unassigned]
    found = []
    graph: dict[str, set[str]] = {unit: set() for unit in units}
    known = set(LEVEL)
    for unit, files in units.items():
        for path in files:
            for line, target in imported_modules(path, src):
                why = complaint(unit, target, known)
                if why:
                    found.append(f"{path.relative_to(src)}:{line}: {unit} imports {target}: {why}")
                elif target.partition(".")[0].startswith("meristem"):
                    graph[unit] |= {imported_unit(target, known)} - {unit, FRONT}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"units import each other in a circle: {' -> '.join(error.args[1])}")
    return found


def test_imports_go_downward_only() -> None:
    assert not (found := violations(SRC)), "\n" + "\n".join(found)


def test_every_unit_has_one_layer() -> None:
    assert len(LEVEL) == sum(map(len, LAYERS))
    assert LEVEL.keys() >= STRANGERS | BENCH


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("meristem/__init__.py", "from meristem.trace import trace\nfrom .grower import Grower\n"),
        (
            "meristem/trace/trace.py",
            "import torch.nn as nn\nfrom meristem.space.plan import Plan\nfrom . import labels\n",
        ),
        ("meristem/checkpoint.py", "import json\nfrom meristem.io.export import export\n"),
        ("meristem/cli.py", "import rich\nfrom meristem import __version__, trace, models\n"),
        ("meristem/report/curves.py", "import matplotlib.pyplot as plt\n"),
        (
            "meristem_bench.recipes/cifar.py",
            "from meristem_bench.runs.run import Run\nfrom meristem_bench.recipes import shared\n",
        ),
    ],
)
def test_allowed(tmp_path: Path, file: str, code: str) -> None:
    assert violations(written(tmp_path, {file: code})) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"meristem/gate.py": "from meristem.space import Space"}, "space lies above gate"),
        (
            {"meristem/gate.py": "def f():\n    from .space import Space"},
            "gate.py:2: gate imports meristem.space.Space",
        ),
        ({"meristem/space/plan.py": "from ..cost import count"}, "cost lies above space"),
        ({"meristem/trace/ops.py": "import meristem.surgery.resize"}, "never import each other"),
        ({"meristem/control/budget.py": "from meristem import trace"}, "never import each other"),
        ({"meristem/grower.py": "from meristem import MeristemError"}, "not from the front"),
        ({"meristem/testing.py": "from meristem_bench.models import resnet"}, "never imports the bench side"),
        ({"meristem/export.py": "import meristem_bench.recipes.cifar"}, "never imports the bench side"),
        ({"meristem/__init__.py": "from meristem_bench.cli import main"}, "not the bench side"),
        (
            {"meristem/models/resnet.py": "from meristem.errors import MeristemError"},
            "imports nothing of meristem",
        ),
        ({"meristem/cost/latency.py": "import scipy.optimize"}, "the core imports only"),
        ({"meristem/run.py": "import matplotlib"}, "plotting belongs in report"),
        ({"meristem/helpers.py": ""}, "helpers has no layer"),
        ({"meristem/gate.py": "from . import init", "meristem/init.py": "from . import gate"}, "in a circle"),
    ],
)
def test_caught(tmp_path: Path, files: dict[str, str], message: str) -> None:
    found = violations(written(tmp_path, files))
    assert len(found) == 1
    assert message in found[0]


def written(src: Path, files: dict[str, str]) -> Path:
    for name, code in files.items():
        path = src / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return src
