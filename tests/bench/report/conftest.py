"""Run folders that all tests of reports read, and a browser to look at pages with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from run_folders import write_run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two budgets, two seeds of one of them, and a run that grows depth."""
    base = tmp_path_factory.mktemp("runs")
    write_run(base / "study" / "a", budget="params=40%", seed=0)
    write_run(base / "study" / "b", budget="params=40%", seed=1)
    write_run(base / "study" / "c", budget="params=70%", seed=0)
    write_run(base / "study" / "d", budget="params=40%", seed=0, method="uniform")
    write_run(base / "deep", depth=True)
    return base


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playing:
        opened = playing.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield opened
        opened.close()
