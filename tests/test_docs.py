"""The documents say what is true: code and commands run, links lead somewhere, shown files and the layout are real."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import torch

import meristem
from meristem_bench.cli import main
from meristem_bench.commands import study as study_command
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.studies.study import Study

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__docs__"}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page.name} block {number}", "exec", dont_inherit=True), names)


def test_the_first_lines_of_the_readme_run_with_what_a_reader_has() -> None:
    """They are a part of a program: the reader has a model, its optimizer and images."""
    (fragment,) = blocks(ROOT / "README.md", "py")
    model = ResNetCifar(8, channels=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {"meristem": meristem, "model": model, "optimizer": optimizer, "images": torch.ones(2, 1, 8, 8)}
    exec(compile(fragment, "README.md fragment", "exec", dont_inherit=True), names)


def test_lines_shown_for_other_libraries_are_those_of_the_examples() -> None:
    programs = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")).splitlines()
    shown = [line for block in blocks(ROOT / "docs" / "integrations.md", "py") for line in block.splitlines()]
    assert len(shown) == 9
    assert not [line for line in shown if line not in programs]


def commands_by_folder() -> dict[str, list[list[str]]]:
    """The commands of the README, together with those that use the folder of the same run, in order."""
    lines = "\n".join(blocks(ROOT / "README.md", "sh")).splitlines()
    commands: dict[str, list[list[str]]] = {}
    for line in lines:
        if line.startswith("meristem "):
            words = shlex.split(line, comments=True)[1:]
            folder = next((word for word in words if word.startswith("run/")), "no folder")
            commands.setdefault(folder, []).append(words)
    return commands


@pytest.mark.usefixtures("forked_studies")
@pytest.mark.parametrize("folder", commands_by_folder())
def test_commands_of_the_readme_work_in_order(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plain `meristem grow` takes a minute; here it takes two epochs, everything else is as printed."""
    monkeypatch.chdir(tmp_path)
    for words in commands_by_folder()[folder]:
        assert main([*words, "--epochs", "2"] if words == ["grow"] else words) == 0, words
        assert capsys.readouterr().out


def commands_of_the_paper_page() -> list[str]:
    text = "\n".join(blocks(ROOT / "docs" / "paper.md", "sh")).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith("meristem ")]


@pytest.mark.parametrize("command", commands_of_the_paper_page())
def test_commands_of_the_paper_page_can_be_given(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recipes, arms, budgets and settings are accepted; nothing is trained."""
    monkeypatch.chdir(tmp_path)
    Path("DIR").mkdir()
    _, verb, recipe, *words = shlex.split(command)
    one_seed = {"grow": ["--seeds", "1"], "sweep": []}[verb]  # several seeds are a study, which can be looked at
    studies = list[Study]()
    monkeypatch.setattr(study_command, "_run_studies", lambda args, given, out: studies.extend(given) or 0)
    assert main([verb, recipe, *words, *one_seed]) == 0, capsys.readouterr().err
    assert [study.run_of(case).name for study in studies for case in study.cases()]


def test_make_targets_of_the_readme_exist() -> None:
    wanted = re.findall(r"^make (\w+)", "\n".join(blocks(ROOT / "README.md", "sh")), re.MULTILINE)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted
    assert set(wanted) <= set(targets)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_method_shown_in_extending_is_the_file() -> None:
    """Adding a method takes one file, an import and an entry: the page shows them as they are."""
    page = ROOT / "docs" / "extending.md"
    assert (ROOT / "src/meristem/control/rivals/l1_pruning.py").read_text(encoding="utf-8") in blocks(page, "python")
    diff = next(block for block in blocks(page, "diff") if "methods.py" in block)
    lines = (ROOT / "src/meristem/methods.py").read_text(encoding="utf-8").splitlines()
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    assert len(added) == 2
    assert set(added) <= set(lines)


def test_equations_named_in_the_code_exist() -> None:
    headings = re.findall(r"^##+ (.+)$", (ROOT / "docs" / "equations.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {
        name
        for path in sorted((ROOT / "src").rglob("*.py"))
        for name in re.findall(r"\(Eq\. ([^)]+)\)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 5
    assert named <= set(headings)


def rooms(package: Path) -> set[str]:
    """The packages inside a package and the modules at its top, as a table of the layout names them."""
    folders = {f"{path.parent.relative_to(package)}/" for path in package.rglob("__init__.py")} - {"./"}
    return folders | {path.name for path in package.glob("*.py") if not path.name.startswith("__")}


@pytest.mark.parametrize("package", ["meristem", "meristem_bench"])
def test_every_room_has_a_line_in_the_layout(package: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split(f"| `src/{package}/` |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(.+?)` \| \w", table, re.MULTILINE), "no lines were found"
    assert set(re.findall(r"^\| `(.+?)` \| \w", table, re.MULTILINE)) == rooms(ROOT / "src" / package)


def test_every_module_says_in_a_line_what_it_is() -> None:
    """The layout has a line for each room; inside a room, the first line of each file tells what it is about."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text:
            docstring = ast.get_docstring(ast.parse(text))
            assert docstring, f"{path.relative_to(ROOT)} has no docstring"
            assert len(docstring.splitlines()[0]) > 10, f"{path.relative_to(ROOT)}: {docstring}"
