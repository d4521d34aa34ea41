"""``meristem sweep --ray``: a sweep's cells as tasks of a Ray cluster of two nodes, which may lose some of itself."""

from __future__ import annotations

import csv
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meristem_bench.cli import main
from other_libraries import library
from tiny_recipe import tiny_recipe

BROKEN = """
    if os.path.exists("broken"):
        raise ValueError("the file x is damaged")
"""
DEADLY = """
    if os.path.exists("deadly"):
        os.kill(os.getpid(), 9)
"""
HELD = """
    BATCHES.append(os.getpid())
    while len(BATCHES) > 2 and os.path.exists("hold"):  # there are two in an epoch
        with open("who", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(0.05)
"""
RECIPE = tiny_recipe(epochs=4, met=HELD + BROKEN + DEADLY, more="\nBATCHES = []\n")
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
CLOCKED = ("seconds", "latency", "other_work")
SECONDS = 120  # at most, on a machine that has much else to do
# What the machinery of Ray warns of is not ours.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ray_recipe.py").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each, as two machines would be."""
    library("ray")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **NODE})
    found.add_node(**NODE)
    yield found
    found.shutdown()


def sweep(*words: str) -> int:
    return main(["sweep", "ray_recipe:tiny", *words])


def table(out: str) -> list[dict[str, str]]:
    with (Path(out) / "results.csv").open() as file:
        return [{name: row[name] for name in row if not name.startswith(CLOCKED)} for row in csv.DictReader(file)]


class Meanwhile(threading.Thread):
    """Does something as soon as a condition holds, while the test waits for its sweep."""

    def __init__(self, condition: Callable[[], bool], act: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._condition, self._act, self.acted = condition, act, False
        self.start()

    def run(self) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if self._condition():
                self._act()
                self.acted = True
                return
            time.sleep(0.02)


def epochs(run: str) -> int:
    path = Path(run, "history.jsonl")
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_the_table_is_that_of_jobs(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of arms that wait for others; and nothing is run that is there."""
    words = ["--budgets", "30%", "--arms", "grown,direct", "--out"]
    assert sweep(*words, "out", "--ray", cluster.address) == 0
    first = capsys.readouterr().out
    told = [line.partition("  (")[0] for line in first.splitlines() if "seed 0" in line]  # how far the table is
    assert told == [
        f"{word} params 30%  {arm}  seed 0" for arm in ("grown", "direct") for word in ("started", "finished")
    ]
    assert sweep(*words, "here") == 0
    assert table("out") == table("here")
    capsys.readouterr()
    assert sweep(*words, "out", "--ray", cluster.address) == 0
    assert "started" not in capsys.readouterr().out


def test_a_cell_whose_worker_is_killed_goes_on_in_another(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("hold").touch()
    run = "out/params=36%/grown-seed0"

    def kill() -> None:
        Path("hold").unlink()
        os.kill(int(Path("who").read_text()), signal.SIGKILL)

    killer = Meanwhile(lambda: epochs(run) >= 1 and Path("who").exists(), kill)
    assert sweep("--arms", "grown", "--out", "out", "--ray", cluster.address) == 0
    assert killer.acted
    printed = capsys.readouterr().out
    assert "lost the worker of params 36%  grown  seed 0; it goes on in another one" in printed
    assert "resumed after epoch" in Path(f"{run}.log").read_text()
    assert sweep("--arms", "grown", "--out", "here") == 0
    assert table("out") == table("here")


def test_cells_of_a_node_that_is_lost_go_on_elsewhere(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("hold").touch()
    node = cluster.add_node(**NODE)

    def lose() -> None:
        cluster.remove_node(node, allow_graceful=False)
        Path("hold").unlink()

    runs = [f"out/params=36%/grown-seed{seed}" for seed in range(3)]
    loser = Meanwhile(lambda: all(epochs(run) >= 1 for run in runs), lose)
    assert sweep("--arms", "grown", "--seeds", "3", "--out", "out", "--ray", cluster.address) == 0
    assert loser.acted
    assert capsys.readouterr().out.count("lost the worker") == 1
    assert sweep("--arms", "grown", "--seeds", "3", "--out", "here") == 0
    assert table("out") == table("here")


def test_what_fails_is_told_and_does_not_keep_the_rest(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--arms", "grown", "--out", "out", "--ray", cluster.address]
    Path("broken").touch()
    assert sweep(*words) == 2
    printed = capsys.readouterr()
    log = Path("out/params=36%/grown-seed0.log")
    assert printed.err == f"meristem: 1 of 1 runs failed: see {log}\n"
    assert "meristem: tiny: the file x is damaged" in log.read_text()
    Path("broken").rename("deadly")
    assert sweep(*words) == 2
    assert capsys.readouterr().err == (
        f"meristem: 1 of 1 runs failed: 3 workers died one after the other (WorkerCrashedError), see {log}\n"
    )


def test_without_an_address_there_is_a_ray_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    library("ray")
    assert sweep("--arms", "grown", "--out", "out", "--ray", "--set", "epochs=1") == 0
    assert "finished params 36%  grown  seed 0" in capsys.readouterr().out
    assert len(table("out")) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ray", "--jobs", "2"], "--ray runs as many at a time as the cluster has room for: leave out --jobs"),
        (["--ray", "127.0.0.1:1"], "--ray 127.0.0.1:1: there is no Ray to work with ("),
    ],
)
def test_what_cannot_be_is_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    library("ray")
    assert sweep("--out", "out", *words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"meristem: {message}")
    assert not Path("out").exists()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert sweep("--out", "out", "--ray") == 2
    assert capsys.readouterr().err == "meristem: --ray needs a package more: pip install 'meristem[ray]'\n"
    assert not Path("out").exists()
