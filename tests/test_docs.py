"""The documents say what is true: their Python blocks run, their commands work, their links and tree entries exist."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from meristem_bench.cli import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__docs__"}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page.name} block {number}", "exec"), names)


def commands() -> list[list[str]]:
    lines = "\n".join(blocks(ROOT / "README.md", "sh")).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("meristem ")]


def test_commands_of_the_readme_work_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plain `meristem grow` takes a minute; here it takes two epochs, everything else is as printed."""
    monkeypatch.chdir(tmp_path)
    for words in commands():
        assert main([*words, "--epochs", "2"] if words == ["grow"] else words) == 0, words
        assert capsys.readouterr().out


def test_make_targets_of_the_readme_exist() -> None:
    wanted = re.findall(r"^make (\w+)", "\n".join(blocks(ROOT / "README.md", "sh")), re.MULTILINE)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted
    assert set(wanted) <= set(targets)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_module_stands_in_the_tree_of_the_readme() -> None:
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("## Layout")[1]
    for folder, _, files in os.walk(ROOT / "src" / "meristem"):
        for name in files:
            inside_ops = Path(folder).name == "ops"
            if name.endswith(".py") and not name.startswith("__") and not inside_ops:
                assert name in tree, f"{name} is missing in the README's tree"
