"""Imports go downward only, module by module, and nothing grows too large to read.

Imports are read from the syntax tree of both packages, so one inside a function, under TYPE_CHECKING or in a call of
`import_module` counts like any other. `from a import b` imports the module `a.b` if there is one, else `a`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import meristem

SRC = Path(__file__).parents[1] / "src"

# From the bottom up. A name stands for a module or for all modules of a package that have no level of their own; it
# need not exist yet. A module imports from its own level and from those below.
LIBRARY = (
    ("errors",),
    (
        "gating.kinds",
        "gating.interfaces",
        "surgery.fresh",
        "space.arrays",
        "space.paths",
    ),  # pure mathematics, types, names
    ("space", "rules"),
    ("cost", "distributed"),
    ("tracing", "surgery", "control"),
    ("gating",),
    ("history", "io", "scalars"),
    ("methods",),
    ("grower", "grower_checks", "grower_text", "growth"),
    ("testing",),
    ("__init__",),
    ("integrations",),  # above the front: nothing of the library imports it
)
BENCH = (
    ("data", "models"),
    ("runs",),
    ("recipes", "studies", "show", "architecture_search"),
    ("report",),
    ("commands",),
    ("cli",),
)
# Reading, acting and deciding know nothing of each other, but for what is pure; gates neither read nor decide.
STRANGERS = {
    "tracing": {"surgery", "control"},
    "surgery": {"tracing", "control"},
    "control": {"tracing", "surgery"},
    "gating": {"tracing", "control"},
}
PURE = 1  # the highest level that strangers may import, too
STARTS_THE_COMMAND = "meristem.__main__"
STANDALONE = ("meristem_bench.models", "meristem_bench.data")
THIRD_PARTY = frozenset({"torch", "numpy", "safetensors"})
INTEGRATED = frozenset({"lightning", "transformers", "accelerate", "huggingface_hub"})  # each by the file of its name
PLOTTING = frozenset({"matplotlib", "seaborn", "plotly"})

GROWER_FAN_OUT = 15
CLASS_LINES = 250
FUNCTION_LINES = 60
FLAT_MODULES = 12


@dataclass(frozen=True)
class Import:
    """One import: the module that has it, the line, the dotted name, and the module of ours that it means, if any."""

    module: str
    line: int
    name: str
    target: str | None

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.name}"


class Source:
    """Both packages as text: their modules and what these import."""

    def __init__(self, src: Path) -> None:
        self.files: dict[str, Path] = {}
        for path in sorted(src.rglob("*.py")):
            parts = path.relative_to(src).with_suffix("").parts
            self.files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {module: ast.parse(path.read_text("utf-8"), str(path)) for module, path in self.files.items()}

    @cached_property
    def imports(self) -> list[Import]:
        return [
            Import(module, line, name, self.nearest_module(name))
            for module in self.files
            for line, name in self.imported_names(module)
        ]

    def imported_names(self, module: str) -> Iterator[tuple[int, str]]:
        """Line and absolute dotted name of everything a module imports."""
        package = module.split(".") if self.files[module].name == "__init__.py" else module.split(".")[:-1]
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                prefix = ".".join([*base, *([node.module] if node.module else [])])
                yield from ((node.lineno, f"{prefix}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "import_module":
                text = ast.unparse(node.args[0])  # of an f-string, what stands before the first brace
                if text.startswith(("'", "f'")):
                    yield node.lineno, text.lstrip("f").strip("'").partition("{")[0].rstrip(".")

    def nearest_module(self, name: str) -> str | None:
        """The module or package of ours that a dotted name lies in."""
        while name and name not in self.files:
            name = name.rpartition(".")[0]
        return name or None

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """Module -> modules of ours that it imports."""
        graph: dict[str, set[str]] = {module: set() for module in self.files}
        for found in self.imports:
            if found.target and found.target != found.module:
                graph[found.module].add(found.target)
        return graph


# --- rules: each gives its complaints, one line each ----------------------------------------------------------------


def cycles(source: Source) -> list[str]:
    """One line per cycle; the imports that close it are left out to find the next."""
    graph = {module: set(targets) for module, targets in source.graph.items()}
    complaints = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            path = error.args[1][::-1]  # graphlib goes from the imported to the importing module
            complaints.append(f"modules import each other in a circle: {' -> '.join(path)}")
            graph[path[0]].discard(path[1])
        else:
            return complaints


def level(module: str) -> int | None:
    """Where a module stands among the levels of its package; None if it has no level."""
    package, _, rest = module.partition(".")
    levels = LIBRARY if package == "meristem" else BENCH
    rest = rest or "__init__"
    while rest:
        for number, names in enumerate(levels):
            if rest in names:
                return number
        rest = rest.rpartition(".")[0]
    return None


def without_level(source: Source) -> list[str]:
    exempt = {STARTS_THE_COMMAND, "meristem_bench"}
    return [
        f"{module} has no level; give it one in LIBRARY or BENCH"
        for module in source.files
        if module not in exempt and level(module) is None
    ]


def upward(source: Source) -> list[str]:
    """Imports of a module of the same package that lies above, or that the importing one must not know."""
    complaints = []
    for found in source.imports:
        if found.target is None or found.module == STARTS_THE_COMMAND:
            continue
        package, _, inner = found.module.partition(".")
        other, _, target = found.target.partition(".")
        mine, theirs = level(found.module), level(found.target)
        if package != other or found.target == found.module or mine is None or theirs is None:
            continue
        room, target_room = inner.partition(".")[0], target.partition(".")[0]
        if found.target == "meristem":
            complaints.append(f"{found}: the library imports a name from its own file, not from the front")
        elif theirs > mine:
            complaints.append(f"{found}: {found.target} lies above {found.module}")
        elif package == "meristem" and target_room in STRANGERS.get(room, ()) and theirs > PURE:
            complaints.append(f"{found}: {room} never imports {target_room}")
    return complaints


def between_packages(source: Source) -> list[str]:
    complaints = []
    for found in source.imports:
        top = (found.target or "").partition(".")[0]
        if found.module.partition(".")[0] == "meristem" and top == "meristem_bench":
            if found.module != STARTS_THE_COMMAND:
                complaints.append(f"{found}: the library never imports the bench")
        elif found.module.startswith(STANDALONE) and top:
            room = next(room for room in STANDALONE if found.module.startswith(room))
            if not f"{found.target}.".startswith(f"{room}."):
                complaints.append(f"{found}: {room} imports nothing else of ours")
    return complaints


def third_party(source: Source) -> list[str]:
    complaints = []
    for found in source.imports:
        top = found.name.partition(".")[0]
        if found.target is None and found.module.partition(".")[0] == "meristem":
            own = {top} & INTEGRATED if found.module == f"meristem.integrations.{top}" else set()
            if top not in THIRD_PARTY | sys.stdlib_module_names | own:
                wanted = ", ".join(sorted(THIRD_PARTY))
                complaints.append(f"{found}: the library imports only the standard library and {wanted}")
        elif top in PLOTTING and not found.module.startswith("meristem_bench.report"):
            complaints.append(f"{found}: plotting belongs in meristem_bench.report")
    return complaints


def too_many_imports(source: Source) -> list[str]:
    targets = sorted(source.graph.get("meristem.grower", ()))
    if len(targets) <= GROWER_FAN_OUT:
        return []
    return [f"meristem.grower imports {len(targets)} modules, at most {GROWER_FAN_OUT} wanted: {', '.join(targets)}"]


def too_long(source: Source) -> list[str]:
    """Classes and functions longer than anyone reads at once, docstrings and decorators included."""
    complaints = []
    for module, tree in source.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                lines = (node.end_lineno or first) - first + 1
                most = CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES
                if lines > most:
                    complaints.append(f"{module}:{node.lineno} {node.name} has {lines} lines, at most {most} wanted")
    return complaints


def too_flat(source: Source) -> list[str]:
    flat = [
        module
        for module, path in source.files.items()
        if module.count(".") == 1 and module.startswith("meristem.") and path.name != "__init__.py"
    ]
    if len(flat) <= FLAT_MODULES:
        return []
    return [f"{len(flat)} modules lie at the top of the library, at most {FLAT_MODULES} wanted: {', '.join(flat)}"]


RULES = (
    cycles,
    without_level,
    upward,
    between_packages,
    third_party,
    too_many_imports,
    too_long,
    too_flat,
)


@pytest.fixture(scope="module")
def source() -> Source:
    return Source(SRC)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_both_packages(rule, source: Source) -> None:
    assert not (complaints := rule(source)), "\n" + "\n".join(complaints)


def test_every_name_has_one_level() -> None:
    for levels in (LIBRARY, BENCH):
        names = [name for names in levels for name in names]
        assert len(names) == len(set(names))


# --- the front ------------------------------------------------------------------------------------------------------


def test_the_front_shadows_no_module() -> None:
    """After `import meristem`, every dotted name of a module leads to that module and not to a function of its name."""
    for info in pkgutil.iter_modules(meristem.__path__, "meristem."):
        name = info.name.partition(".")[2]
        if name != "__main__":
            module = importlib.import_module(info.name)
            assert getattr(meristem, name) is module, name


@pytest.mark.parametrize(
    "name", ["tracing", "tracing.labels", "tracing.trace", "io", "io.export", "io.checkpoint", "space.plan", "methods"]
)
def test_modules_are_reached_through_the_front(name: str) -> None:
    module = importlib.import_module(f"meristem.{name}")
    reached: object = meristem
    for part in name.split("."):
        reached = getattr(reached, part)
    assert reached is module


def test_the_front_has_what_it_promises() -> None:
    assert sorted(set(meristem.__all__)) == sorted(meristem.__all__)
    assert all(hasattr(meristem, name) for name in meristem.__all__)


_WHAT_IS_IMPORTED = """
import sys
import numpy, safetensors.torch, torch
before = set(sys.modules)
import meristem
print(*sorted(set(sys.modules) - before))
"""


def test_the_front_brings_little_beside_torch() -> None:
    """`import meristem` is quick on top of torch: counted in modules, because seconds depend on the machine."""
    listed = subprocess.run([sys.executable, "-c", _WHAT_IS_IMPORTED], capture_output=True, text=True, check=True)
    modules = listed.stdout.split()
    own = [name for name in modules if name.partition(".")[0] == "meristem"]
    others = [name for name in modules if name not in own and "cython" not in name]
    assert {name.partition(".")[0] for name in others} <= {"numpy", "torch", *sys.stdlib_module_names}
    slow = ("torch._dynamo", "torch._inductor", "torch.onnx", "torch.export", "torch.utils.tensorboard")
    assert not [name for name in others if name.startswith(slow)]
    assert len(own) < 200
    assert len(others) < 40


# --- every complaint is made where it should be, and only there -----------------------------------------------------


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("meristem/__init__.py", "from meristem.tracing.trace import trace\nfrom .grower import Grower\n"),
        ("meristem/__main__.py", "from meristem_bench.cli import main\n"),
        (
            "meristem/tracing/trace.py",
            "import torch.nn as nn\nfrom meristem.space.plan import Plan\nfrom . import labels",
        ),
        ("meristem/tracing/ops/table.py", "from meristem.tracing.labels import Labels\nfrom ...cost import count\n"),
        (
            "meristem/control/method.py",
            "from meristem.gating.kinds import Open\nfrom meristem.surgery.fresh import Built",
        ),
        ("meristem/gating/unit_weights.py", "from meristem.surgery.live import Live\n"),
        ("meristem/io/checkpoint.py", "import json\nfrom meristem.io.export import export\n"),
        ("meristem_bench/cli.py", "import rich\nfrom meristem import __version__, trace\nfrom . import models\n"),
        ("meristem_bench/report/curves.py", "import matplotlib.pyplot as plt\n"),
        ("meristem_bench/recipes/cifar.py", "from meristem_bench.runs.run import Run\nfrom . import shared\n"),
        ("meristem/grower.py", "class Large:\n" + "    x = 1\n" * (CLASS_LINES - 1)),
        ("meristem/integrations/lightning.py", "import lightning\nfrom meristem.grower_checks import x\n"),
    ],
)
def test_allowed(tmp_path: Path, file: str, code: str) -> None:
    assert complaints_about(tmp_path, {file: code}) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"meristem/errors.py": "from meristem.space.space import Space"}, "space.space lies above meristem.errors"),
        (
            {"meristem/space/arrays.py": "def f():\n    from .space import Space"},
            "meristem.space.arrays:2 imports meristem.space.space.Space",
        ),
        (
            {"meristem/space/arrays.py": "if TYPE_CHECKING:\n    from .space import Space"},
            "meristem.space.space lies above meristem.space.arrays",
        ),
        ({"meristem/space/plan.py": "from ..cost import count"}, "meristem.cost.count lies above meristem.space.plan"),
        ({"meristem/gating/kinds.py": "import meristem.space.space"}, "lies above meristem.gating.kinds"),
        ({"meristem/surgery/live.py": "from meristem.gating.hooks import x"}, "lies above meristem.surgery.live"),
        ({"meristem/control/first.py": "from meristem.grower_checks import x"}, "lies above meristem.control.first"),
        ({"meristem/tracing/ops/moving.py": "import meristem.surgery.live"}, "tracing never imports surgery"),
        ({"meristem/control/budget.py": "from meristem import tracing"}, "control never imports tracing"),
        ({"meristem/control/budget.py": "from meristem.surgery import live"}, "control never imports surgery"),
        ({"meristem/gating/unit_weights.py": "from meristem.control import budget"}, "gating never imports control"),
        ({"meristem/gating/unit_weights.py": "import meristem.tracing.labels"}, "gating never imports tracing"),
        ({"meristem/grower.py": "from meristem import MeristemError"}, "not from the front"),
        ({"meristem/testing.py": "from meristem_bench.models import resnet"}, "never imports the bench"),
        ({"meristem/io/export.py": "import importlib\nimportlib.import_module('meristem_bench.cli')"}, "the bench"),
        ({"meristem/io/export.py": "import_module(f'meristem_bench.{name}')"}, "never imports the bench"),
        ({"meristem/__init__.py": "from meristem_bench.cli import main"}, "never imports the bench"),
        ({"meristem_bench/models/resnet.py": "from meristem.errors import X"}, "models imports nothing else of ours"),
        ({"meristem_bench/data/words.py": "from ..models import resnet"}, "data imports nothing else of ours"),
        ({"meristem_bench/runs/run.py": "from ..commands import grow"}, "lies above meristem_bench.runs.run"),
        ({"meristem/cost/latency.py": "import scipy.optimize"}, "the library imports only"),
        ({"meristem/integrations/lightning.py": "import transformers"}, "the library imports only"),
        (
            {"meristem/__init__.py": "from . import integrations", "meristem/integrations/__init__.py": ""},
            "meristem.integrations lies above meristem",
        ),
        ({"meristem_bench/runs/run.py": "import matplotlib"}, "plotting belongs in meristem_bench.report"),
        ({"meristem/helpers.py": ""}, "meristem.helpers has no level"),
        ({"meristem_bench/helpers.py": ""}, "meristem_bench.helpers has no level"),
        ({"meristem/io/a.py": "from . import b", "meristem/io/b.py": "from . import a"}, "in a circle: meristem.io."),
        (
            {
                "meristem/io/a.py": "from .b import x",
                "meristem/io/b.py": "from meristem import history",
                "meristem/history.py": "def f():\n    import meristem.io.a",
            },
            "in a circle",
        ),
        (
            {"meristem_bench/data/__init__.py": "from .x import y", "meristem_bench/data/x.py": "from . import z"},
            "in a circle",
        ),
        (
            {
                "meristem/grower.py": "\n".join(f"import meristem.space.s{n}" for n in range(GROWER_FAN_OUT + 1)),
                **{f"meristem/space/s{n}.py": "" for n in range(GROWER_FAN_OUT + 1)},
            },
            f"imports {GROWER_FAN_OUT + 1} modules",
        ),
        ({"meristem/history.py": "class Large:\n" + "    x = 1\n" * CLASS_LINES}, f"Large has {CLASS_LINES + 1} lines"),
        (
            {
                "meristem_bench/cli.py": "class A:\n  @property\n  def long(self):\n"
                + "    x = 1\n" * (FUNCTION_LINES - 1)
            },
            f"long has {FUNCTION_LINES + 1} lines",
        ),
    ],
)
def test_caught(tmp_path: Path, files: dict[str, str], message: str) -> None:
    complaints = complaints_about(tmp_path, files)
    assert len(complaints) == 1, complaints
    assert message in complaints[0]


def test_a_crowded_top_is_caught(tmp_path: Path) -> None:
    (tmp_path / "meristem" / "space").mkdir(parents=True)
    (tmp_path / "meristem" / "space" / "__init__.py").touch()
    for number in range(FLAT_MODULES):
        (tmp_path / "meristem" / f"m{number}.py").touch()
    assert too_flat(Source(tmp_path)) == []
    (tmp_path / "meristem" / "one_more.py").touch()
    assert "one_more" in too_flat(Source(tmp_path))[0]


MODULES = (
    *(
        "errors",
        "gating.kinds",
        "gating.interfaces",
        "surgery.fresh",
        "space.arrays",
        "space.space",
        "space.plan",
        "cost.count",
    ),
    *("tracing.labels", "surgery.live", "control.budget", "gating.hooks", "history", "io.export", "grower_checks"),
)


def complaints_about(src: Path, files: dict[str, str]) -> list[str]:
    """What all rules say about these files in a tree where every module that they may name exists."""
    modules = [
        *(f"meristem/{name.replace('.', '/')}.py" for name in MODULES),
        *(f"meristem_bench/{name}/__init__.py" for names in BENCH for name in names if name != "cli"),
        *("meristem_bench/cli.py", "meristem_bench/commands/grow.py", "meristem_bench/models/resnet.py"),
    ]
    packages = [f"{path.rpartition('/')[0]}/__init__.py" for path in modules]
    paths = [*modules, *packages]
    for path, code in {**dict.fromkeys(paths, ""), **files}.items():
        (src / path).parent.mkdir(parents=True, exist_ok=True)
        (src / path).write_text(code, encoding="utf-8")
    return [complaint for rule in RULES for complaint in rule(Source(src))]
