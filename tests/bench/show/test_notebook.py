"""Progress in a notebook, as IPython sends it to the browser: one output that is drawn again, and not a line more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from meristem_bench.cli import main
from meristem_bench.show.notebook import in_notebook, make_progress
from meristem_bench.show.progress import ProgressDisplay
from other_libraries import library
from tiny_recipe import tiny_recipe


def test_outside_of_a_notebook_progress_is_text() -> None:
    assert not in_notebook()
    assert isinstance(make_progress(), ProgressDisplay)


def test_a_run_is_one_output_that_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    hook, displayed = sys.excepthook, sys.displayhook
    shell = InteractiveShell.instance()
    try:
        assert not in_notebook(), "IPython in a terminal"
        shell.kernel = "what a notebook's shell has"
        (tmp_path / "shown_recipe.py").write_text(tiny_recipe(epochs=3))
        monkeypatch.chdir(tmp_path)
        with capture_output() as captured:
            assert main(["grow", "shown_recipe:tiny", "--out", "a"]) == 0
        outputs = captured._outputs
        assert isinstance(make_progress(plain=True), ProgressDisplay)
    finally:
        InteractiveShell.clear_instance()
        sys.excepthook, sys.displayhook = hook, displayed
    assert [each["update"] for each in outputs] == [False] + [True] * (len(outputs) - 1)
    assert len({each["transient"]["display_id"] for each in outputs}) == 1
    first, last = (outputs[at]["data"] for at in (0, -1))
    assert "epoch 0/3" in first["text/html"]
    assert "epoch 3/3  accuracy" in last["text/html"]
    assert last["text/html"].count("<progress") == 1  # a bar for the one group
    assert last["text/plain"].startswith("tiny: method default, seed 0, epoch 3/3  accuracy")
    assert "epoch 1/3" not in captured.stdout
    assert "test accuracy" in captured.stdout
