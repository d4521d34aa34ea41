"""One thread, Ctrl-C that is heard, few and repeatable hypothesis examples, and one trace per zoo net for all tests."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import hypothesis
import pytest
import torch

import meristem
from deep import ALL_NETS, DEEP
from fresh_process import ForkingSubprocess, ForkServer

torch.set_num_threads(1)
# A shell starts background jobs with Ctrl-C ignored, which Python and its children inherit: no test could stop a run.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "zoo", deadline=None, derandomize=True, database=None, max_examples=3, print_blob=False
)
hypothesis.settings.load_profile("zoo")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than a few seconds; leave out with -m 'not slow'")


@pytest.fixture(scope="session")
def space_of() -> Callable[[str], meristem.Space]:
    """Zoo name -> its space, traced once. A space does not know the model's dtype or weights, so it can be shared.

    Deep nets are traced with the blocks that may be absent.
    """

    @cache
    def traced(name: str) -> meristem.Space:
        return meristem.trace(*ALL_NETS[name].build(), depth=name in DEEP)

    return traced


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def fresh_process(fork_server: ForkServer, tmp_path: Path) -> Callable[..., str]:
    """`fresh_process("evaluate", folder)` runs the command in a process of its own and returns what it has written."""
    return partial(fork_server.run, output=tmp_path / "output of a fresh process")


@pytest.fixture
def forked_studies(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a study with several jobs are forks of a process that has imported torch, not new interpreters."""
    monkeypatch.setattr("meristem_bench.studies.execution.subprocess", ForkingSubprocess(fork_server))
