"""A grown network beside its comparisons, over seeds: one command, one table.

    python benchmarks/compare.py resnet20-cifar10-all --data DIR --out DIR --seeds 0,1,2 --jobs 2
    python benchmarks/compare.py digits --out DIR --seeds 0,1,2,3,4 --arms grown,dense

Arms: `grown` (the default method), `uniform` (the same share of every layer, the same budget, from scratch), `random`
(the same growth with random instead of learned evidence), `direct` (the grown network's own widths, from scratch),
`dense`, and any preset of `meristem.methods()`. Everything else is the same. Runs are kept in --out: finished ones are
not run again, stopped ones go on. --set changes settings of the recipe for all arms.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meristem.commands.recipes import recipe
from meristem.errors import MeristemError
from meristem.folder import Folder, read_json
from meristem.progress import Progress
from meristem.run import Run, carry_out, finished_result

METHODS = {"grown": "default"}


def settled(args: argparse.Namespace, arm: str, seed: int) -> tuple[Run, Folder]:
    """The run of one arm and seed, and where it is kept."""
    settings: dict[str, Any] = {"seed": seed, "method": METHODS.get(arm, arm), "threads": args.threads}
    if args.data:
        settings["data_dir"] = str(Path(args.data).resolve())
    settings.update(pair.partition("=")[::2] for pair in args.set)
    if arm == "direct":
        settings["widths"] = str(Path(args.out).resolve() / f"grown-{seed}")
    return recipe(args.recipe).with_settings(settings), Folder(Path(args.out) / f"{arm}-{seed}")


def run_one(args: argparse.Namespace, arm: str, seed: int) -> None:
    run, folder = settled(args, arm, seed)
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.held():
        if finished_result(folder) is None:
            carry_out(run, folder, Progress(sys.stdout))


def run_all(args: argparse.Namespace, arms: Sequence[str], seeds: Sequence[int]) -> None:
    """As many runs at a time as --jobs says, each a process of its own; direct design waits for its grown network."""
    waiting = [(arm, seed) for seed in seeds for arm in arms if not settled_result(args, arm, seed)]
    going: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
    while waiting or going:
        ready = [job for job in waiting if job[0] != "direct" or settled_result(args, "grown", job[1])]
        if ready and len(going) < args.jobs:
            arm, seed = ready[0]
            waiting.remove((arm, seed))
            log = (Path(args.out) / f"{arm}-{seed}.log").open("ab")
            command = [sys.executable, __file__, *sys.argv[1:], "--one", f"{arm}:{seed}"]
            going[arm, seed] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            continue
        if not going:
            raise MeristemError("direct design needs the arm grown")
        for job, process in list(going.items()):
            try:
                code = process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
            del going[job]
            if code:
                raise MeristemError(f"{job[0]} with seed {job[1]} failed; see {args.out}/{job[0]}-{job[1]}.log")
            print(table(args, arms, seeds), flush=True)


def settled_result(args: argparse.Namespace, arm: str, seed: int) -> dict[str, Any] | None:
    path = Folder(Path(args.out) / f"{arm}-{seed}").result
    return read_json(path) if path.is_file() else None


def table(args: argparse.Namespace, arms: Sequence[str], seeds: Sequence[int]) -> str:
    lines = [
        f"| {args.recipe} | seeds | test accuracy, % | parameters | macs | spend | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in arms:
        found = [result for seed in seeds if (result := settled_result(args, arm, seed))]
        if found:
            accuracy = spread([100 * result["test"][result["headline"]] for result in found], 2)
            shares = [spread([100 * result[key] for result in found], 1) + " %" for key in SHARES]
            minutes = spread([result["seconds"] / 60 for result in found], 0)
            lines.append(f"| {arm} | {len(found)} | {accuracy} | {' | '.join(shares)} | {minutes} |")
    return "\n".join(lines)


SHARES = ("params_frac", "macs_frac", "spend_frac")


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and, where there are several, the deviation."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--out", required=True)
    parser.add_argument("--data")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--arms", default="grown,uniform,random,direct")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    arms, seeds = args.arms.split(","), [int(seed) for seed in args.seeds.split(",")]
    try:
        if args.one:
            arm, _, seed = args.one.partition(":")
            run_one(args, arm, int(seed))
            return
        Path(args.out).mkdir(parents=True, exist_ok=True)
        run_all(args, arms, seeds)
    except MeristemError as error:
        sys.exit(f"compare: {error}")
    print(table(args, arms, seeds))


if __name__ == "__main__":
    main()
