"""Recipes of the user's own: what may be wrong with them, and that they are not taken for others."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from meristem_bench.cli import main
from tiny_recipe import tiny_recipe

RECIPE = tiny_recipe()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence with which a command line is refused."""
    capsys.readouterr()
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert error.startswith("meristem: ")
    assert error.count("\n") == 1
    return error.removeprefix("meristem: ").strip()


def test_a_recipe_named_like_one_of_ours_is_not_taken_for_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other data behind the same name and the same network: the run would go on with the wrong ones."""
    (here / "namesake.py").write_text(RECIPE.replace('Run("tiny"', 'Run("digits"'))
    assert main(["grow", "namesake:tiny", "--out", "a"]) == 0
    shutil.rmtree("a/model")
    for words in (["grow", "--resume", "a"], ["evaluate", "a"], ["export", "a", "--out", "b"]):
        assert "a holds a run of 'digits', which is no recipe of meristem" in refused(capsys, *words)
    error = refused(capsys, "grow", "digits", "--resume", "a")
    assert error == "a holds a run of another recipe of the same name, namesake:tiny: name that one"
    assert main(["grow", "namesake:tiny", "--resume", "a"]) == 0
    description = Path("a/run.json")
    description.write_text(description.read_text().replace('"recipe": "namesake:tiny"', '"recipe": null'))
    error = refused(capsys, "grow", "namesake:tiny", "--resume", "a")
    assert error == "a holds a run of another recipe of the same name, meristem's own: name that one"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"test": part(64)', "", "tiny: there is no test split, only train, validation"),
        (
            "part(0)",
            "(inputs.numpy(), targets)",
            "tiny: inputs and targets must be tensors, but the train split has nd",
        ),
        ("    return Arrays(", "    Arrays(", "tiny: its load returned nothing; it must return the data"),
        ("    return nn.Seq", "    nn.Seq", "tiny: its model function returned NoneType, expected an nn.Module"),
        ("epochs=3", 'epochs="3"', "epochs must be a whole number, got '3' (str)"),
        (
            '"machine": Machine(threads=1)',
            '"data": DataConfig(samples=1e3)',
            "samples must be a whole number, got 1000.0 (float)",
        ),
        ("lr=0.1", "lr=None", "lr must be a number, got None (NoneType)"),
        (
            '"machine": Machine(threads=1)',
            """"data": DataConfig(data_dir=__import__('pathlib').Path('x'))""",
            "data_dir must be text, got PosixPath('x')",
        ),
        ("threads=1", "bf16=1", "bf16 must be yes or no, got 1 (int)"),
    ],
)
def test_mistakes_in_a_recipe_of_the_users_own(
    right: str, wrong: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert right in RECIPE
    (here / "mistaken.py").write_text(RECIPE.replace(right, wrong))
    sys.modules.pop("mistaken", None)
    assert message in refused(capsys, "grow", "mistaken:tiny")


def test_too_little_memory_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = "    if os.path.exists('full'):\n        raise torch.OutOfMemoryError\n    return inputs"
    (here / "large_recipe.py").write_text(RECIPE.replace("    return inputs", full))
    (here / "full").touch()
    assert main(["grow", "large_recipe:tiny", "--out", "a"]) == 2
    error = capsys.readouterr().err
    assert "the memory of cpu was not enough in epoch 1; what came before is kept: go on with --resume" in error
    assert "--set batch=8" in error
    (here / "full").unlink()
    assert main(["grow", "large_recipe:tiny", "--resume", "a"]) == 0
