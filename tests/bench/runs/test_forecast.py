"""A run that will miss its budget says so before its first step, once, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import run_to_end
from watching import Watch


@pytest.mark.parametrize(
    ("method", "warns"),
    [("paper", True), ("paper-steady", False), ("default", False), ("dense", False), ("paper-random", False)],
)
def test_only_the_letter_in_a_short_run_warns(method: str, warns: bool, tmp_path: Path) -> None:
    """Two epochs are far from the paper's 160."""
    run = find_run("digits").with_settings({"epochs": 2, "threads": 1, "method": method})
    watch = Watch()
    run_to_end(run, Folder(tmp_path), watch)
    assert len(watch.notes) == warns
    for note in watch.notes:
        assert "under its budget with the method paper: train for more epochs, or use --method paper-steady" in note


def test_a_resumed_run_does_not_say_it_again(tmp_path: Path) -> None:
    run = find_run("digits").with_settings({"epochs": 2, "threads": 1, "method": "paper"})
    with pytest.raises(KeyboardInterrupt):
        run_to_end(run, Folder(tmp_path), Watch(stop=lambda epoch, step: epoch == 1))
    again = Watch()
    run_to_end(run, Folder(tmp_path), again)
    assert (again.resumed_at, again.notes) == (1, [])


@pytest.mark.parametrize(("rate", "tells"), [("cosine", True), ("held@0.7", False), ("constant", False)])
def test_growing_under_a_rate_that_has_fallen_is_told(rate: str, tells: bool, tmp_path: Path) -> None:
    settings = {"epochs": 4, "threads": 1, "method": "default:stairs=0.3@0+1@0.6", "rate": rate}
    watch = Watch()
    run_to_end(find_run("digits").with_settings(settings), Folder(tmp_path), watch)
    assert len(watch.notes) == tells
    for note in watch.notes:
        assert note.startswith("The network grows until 65% of the run")
        assert "--set rate=held@0.65" in note
