"""The tables of docs/results.md that take hours: what each is made of, how far it is, and going on with it.

    python benchmarks/tables.py                                   # how far each table is
    python benchmarks/tables.py run [NAME ...] --data DIR         # go on, two runs at a time; stop it whenever you like
    python benchmarks/tables.py show NAME                         # the table, of what is finished

Every table is one `meristem sweep`, whose runs lie in benchmarks/tables/NAME: finished ones with their results, others
with their checkpoints. Both are kept in git, because the hours of one machine are not enough for most tables: a clone
goes on where the last commit stopped. `run` works through the tables in the order of this file, seed by seed, and
gives each run one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from meristem_bench.runs.result import Result
from meristem_bench.show.result_tables import comparison_table

ROOT = Path(__file__).with_suffix("")
FAST = "--set bf16=yes --set channels_last=yes --set threads=1"
SHORT = f"--epochs 20 --set rate=cosine --set held_out=0 {FAST}"


@dataclass(frozen=True)
class Table:
    """A sweep over seeds. Arms that need one another are one piece; a round of pieces comes before the next."""

    recipe: str
    settings: str
    rounds: tuple[tuple[str, ...], ...]
    seeds: int = 3
    data: str = "cifar10"

    @property
    def arms(self) -> str:
        return ",".join(dict.fromkeys(arm for pieces in self.rounds for piece in pieces for arm in piece.split(",")))

    def pieces(self) -> Iterator[tuple[str, int]]:
        """Arms and seed of everything that can be run by itself, in order."""
        for pieces in self.rounds:
            for seed, arms in product(range(self.seeds), pieces):
                yield arms, seed

    def command(self, name: str, arms: str, data: str, seed: int, seeds: int = 1) -> list[str]:
        flags = f"--arms {arms} --seed {seed} --seeds {seeds} --out {ROOT.parent.name}/{ROOT.name}/{name}"
        return shlex.split(f"sweep {self.recipe} --data {data}/{self.data} {self.settings} {flags}")


CONTROLS = "uniform,default,direct:of=default,uniform:cost=default"
PAPER = ("paper-steady", "paper", "paper-random")
TABLES = {
    # the two headline networks: the default beside uniform, its own widths from scratch, equal cost, the paper's
    "vgg16": Table(
        "vgg16-cifar10",
        f"--by params --budgets 5% --set lr=0.05 {SHORT}",
        (("uniform", "default"), (CONTROLS, *PAPER)),
    ),
    "resnet20": Table(
        "resnet20-cifar10", f"--by params --budgets 36% {SHORT}", (("uniform", "default"), (CONTROLS, *PAPER))
    ),
    # under a cap on what narrow networks are good at
    "resnet20-macs": Table("resnet20-cifar10", f"--by macs --budgets 36% {SHORT}", (("uniform", "default"),)),
    # the paper's own table, at the paper's length
    "full-length": Table(
        "resnet20-cifar10",
        f"--by params --budgets 36% --set held_out=0 {FAST}",
        (("dense", "uniform", "default", "paper-steady", "paper", "paper-random"),),
        seeds=1,
    ),
    # the paper's method finds recurrent widths and depth: from one cell, from one block a stage
    "ptb-paper": Table(
        "ptb-small",
        "--by macs --budgets 33% --set bf16=yes --set threads=1",
        (("paper", "paper-steady"),),
        seeds=1,
        data="ptb",
    ),
    "depth-paper": Table(
        "basic3-resnet-cifar10-short,plain3-net-cifar10-short",
        f"--by params --budgets 40% --epochs 40 {FAST}",
        (("paper", "paper-steady"),),
        seeds=1,
    ),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", nargs="?", choices=("status", "run", "show"), default="status")
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TABLES)} (default: all)")
    arguments.add_argument("--data", default="data", help="the folder in which cifar10 and ptb lie")
    arguments.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    args = arguments.parse_args()
    if unknown := [name for name in args.names if name not in TABLES]:
        arguments.error(f"there is no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    tables = {name: TABLES[name] for name in args.names or TABLES}
    if args.what == "run":
        return run(tables, args.data, args.jobs)
    for name, table in tables.items():
        print(text(name, table) if args.what == "show" else status(name, table))
    return 0


def run(tables: dict[str, Table], data: str, jobs: int) -> int:
    """Work through the pieces of the tables, ``jobs`` at a time; what has begun is stopped when this is."""
    waiting = [
        (f"{name} {arms} seed {seed}", table.command(name, arms, data, seed))
        for name, table in tables.items()
        for arms, seed in table.pieces()
    ]
    running: dict[str, subprocess.Popen[bytes]] = {}
    failed = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                title, command = waiting.pop(0)
                print(f"{time.strftime('%H:%M')}  {title}", flush=True)
                whole = [sys.executable, "-m", "meristem", *command]
                running[title] = subprocess.Popen(whole, cwd=ROOT.parents[1], env=environment)
            time.sleep(1)
            for title in [each for each, process in running.items() if process.poll() is not None]:
                if running.pop(title).returncode:
                    failed.append(title)
    finally:
        for process in running.values():
            process.terminate()
    print("\n".join(f"failed: {title}" for title in failed))
    return 1 if failed else 0


def finished(name: str) -> dict[str, list[Result]]:
    """The results of a table by arm."""
    arms: dict[str, list[Result]] = {}
    for path in sorted((ROOT / name).rglob("result.json")):
        arms.setdefault(path.parent.name.rsplit("-seed", 1)[0], []).append(json.loads(path.read_text()))
    return arms


def text(name: str, table: Table) -> str:
    """The command of a table, and the table as far as it is."""
    command = f"meristem {shlex.join(table.command(name, table.arms, 'DIR', 0, table.seeds))}"
    rows = list(finished(name).items())
    return f"{command}\n\n{comparison_table(rows)}\n" if rows else f"{command}\n\nnothing is finished yet\n"


def status(name: str, table: Table) -> str:
    """How many runs are finished, and the epochs of those that are not."""
    wanted = table.seeds * len(table.arms.split(",")) * len(table.recipe.split(","))
    lines = [f"{name}: {sum(map(len, finished(name).values()))} of {wanted} runs finished"]
    for path in sorted((ROOT / name).rglob("history.jsonl")):
        if not path.with_name("result.json").exists():
            epochs = json.loads(path.with_name("run.json").read_text())["settings"]["epochs"]
            lines.append(f"  {path.parent.name}: {len(path.read_text().splitlines())} of {epochs} epochs")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
