"""Kills ranks of runs under torchrun: every run must end with the losses of one that nobody disturbed.

python benchmarks/kill_ranks.py --runs 200             # 200 runs, a random rank killed once in each, about two hours
python benchmarks/kill_ranks.py --runs 20 --kills 3    # up to 60 kills: several in a run cost less

A kill is a SIGKILL at a random moment of the run: while the ranks import, meet, train, or write. torchrun ends the
other rank and starts both anew, and they go on from the last checkpoint. What is compared, bit for bit: the losses,
widths and training cost of every epoch, the test metrics, and the exported network.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANKS = 2
RUN = ("digits", "--method", "search:peak=1.2", "--set", "threads=1")
TIMES = ("seconds", "peak_bytes")  # what a record says about the machine, not about the run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=1, help="in each run")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and of the ranks")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        undisturbed = Path(folder) / "undisturbed"
        code, _ = run(undisturbed, args.epochs, 0, 0.0, rng)
        assert code == 0, (undisturbed / "log").read_text()
        length, expected = time.monotonic() - started, outcome(undisturbed)
        bad = kills = 0
        for number in range(args.runs):
            place = Path(folder) / str(number)
            code, killed = run(place, args.epochs, args.kills, length, rng)
            same = code == 0 and outcome(place) == expected
            kills, bad = kills + len(killed), bad + (not same)
            moments = ", ".join(f"rank {rank} at epoch {epoch}" for rank, epoch in killed)
            print(f"run {number + 1}: {'same' if same else f'DIFFERS, exit code {code}'}; killed {moments}", flush=True)
            if not same:
                shutil.copy(f"{place}.log", f"failed-{number}.log")
                print(f"its output is in failed-{number}.log")
            shutil.rmtree(place, ignore_errors=True)
    print(f"{kills} kills in {args.runs} runs of {RANKS} ranks, {args.runs - bad} ended as the undisturbed one")
    return bool(bad)


def run(place: Path, epochs: int, kills: int, length: float, rng: random.Random) -> tuple[int, list[tuple[int, int]]]:
    """The exit code of torchrun, and which ranks were killed, after how many finished epochs."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    command += ["--max-restarts", str(kills), "-m", "meristem", "grow", *RUN]
    command += ["--epochs", str(epochs), "--out", str(place)]
    killed: list[tuple[int, int]] = []
    with Path(f"{place}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        known: set[int] = set()
        while len(killed) < kills and (ranks := new_ranks(process, known)):
            known.update(ranks)
            until = time.monotonic() + rng.uniform(0, length)
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            victim = rng.randrange(RANKS)
            if alive(ranks[victim]):
                killed.append((victim, finished_epochs(place)))
                os.kill(ranks[victim], signal.SIGKILL)
            else:  # the run was over before
                break
        return process.wait(), killed


def new_ranks(process: subprocess.Popen[bytes], known: set[int]) -> list[int]:
    """The processes that torchrun has started last, in order; none once it has ended."""
    while process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        new = sorted({int(child) for child in children} - known)
        if len(new) == RANKS:
            return new
        time.sleep(0.02)
    return []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def finished_epochs(place: Path) -> int:
    history = place / "history.jsonl"
    return len(history.read_text().splitlines()) if history.exists() else 0


def outcome(place: Path) -> dict[str, Any]:
    """All that must be the same."""
    records = [json.loads(line) for line in (place / "history.jsonl").read_text().splitlines()]
    return {
        "records": [{name: value for name, value in record.items() if name not in TIMES} for record in records],
        "test": json.loads((place / "result.json").read_text())["test"],
        "network": (place / "model" / "model.safetensors").read_bytes(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
