"""A terminal as the standard output."""

from __future__ import annotations

from typing import Any

import pytest

from bench.show.fake_terminal import FakeTerminal


@pytest.fixture
def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a terminal of some size the standard output."""

    def make(columns: int, lines: int, **environment: str) -> FakeTerminal:
        size = {"COLUMNS": str(columns), "LINES": str(lines)}
        for name, value in {"TERM": "xterm", "NO_COLOR": "", **size, **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdout", terminal := FakeTerminal(columns, lines))
        return terminal

    return make
