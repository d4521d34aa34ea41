"""``meristem grow --seeds`` and ``meristem sweep``: several runs, one table."""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import torch

from meristem.commands.arguments import given_settings, whole_number
from meristem.commands.recipes import recipe
from meristem.control.budget import Budget
from meristem.errors import MeristemError
from meristem.loop import carry_out
from meristem.progress import Progress
from meristem.run import DENSE, Run
from meristem.study import GROWN, Case, Study
from meristem.tables import spread_table


def seeds(args: argparse.Namespace) -> int:
    """One method over several seeds; with --with-dense the full model too."""
    run = _shared_run(args)
    if args.resume is not None:
        raise MeristemError("runs of several seeds go on when the same command is given again: leave out --resume")
    if run.method == DENSE or not args.with_dense:
        arms: tuple[str, ...] = (GROWN,)
    else:
        arms = (GROWN, DENSE)
    out = Path(args.out or Path("runs") / f"{run.name}-seeds")
    return _carry_out(args, Study(run, arms, (run.budget,), _seeds(args, run), out))


def sweep(args: argparse.Namespace) -> int:
    """Several budgets, each with a grown network and what it is compared with."""
    run = _shared_run(args)
    budgets = tuple(_budget(run, args.by, amount) for amount in args.budgets.split(","))
    arms = tuple(arm.strip() for arm in args.arms.split(","))
    out = Path(args.out or Path("runs") / f"{run.name}-sweep")
    return _carry_out(args, Study(run, arms, budgets, _seeds(args, run), out, by_budget=True))


def _shared_run(args: argparse.Namespace) -> Run:
    run = recipe(args.recipe or "digits", args.model).with_settings(given_settings(args))
    jobs = whole_number("--jobs", args.jobs)
    return run if run.threads else dataclasses.replace(run, threads=max(1, torch.get_num_threads() // jobs))


def _seeds(args: argparse.Namespace, run: Run) -> tuple[int, ...]:
    return tuple(range(run.seed, run.seed + whole_number("--seeds", args.seeds)))


def _budget(run: Run, metric: str | None, amount: str) -> Budget:
    metric = metric or ("params" if run.budget.params is not None else "macs")
    return Budget.parse(f"{metric}={amount.strip()}")


def _carry_out(args: argparse.Namespace, study: Study) -> int:
    for case in study.cases():  # what is wrong is told before hours of training
        study.settled(case)
    waiting = [case for case in study.cases() if study.result(case) is None]
    try:
        study.out.mkdir(parents=True, exist_ok=True)
        failed = _in_turn(study, waiting) if int(args.jobs) == 1 else _side_by_side(args, study, waiting)
    except KeyboardInterrupt:
        print("meristem: stopped; every finished epoch is kept. To go on: the same command again", file=sys.stderr)
        return 130
    finally:
        if study.out.is_dir() and not os.listdir(study.out):
            study.out.rmdir()
    if rows := study.rows():
        path = study.write_table()
        print(f"\n{spread_table(rows)}\n\nEverything is in {study.out}; this table, one line a run, in {path}")
    if failed:
        raise MeristemError(f"{len(failed)} of {len(waiting)} runs failed: {'; '.join(failed)}")
    return 0


def _in_turn(study: Study, cases: list[Case]) -> list[str]:
    for case in cases:
        if study.result(case) is None:  # a direct design may have become known meanwhile
            folder = study.folder(case)
            folder.path.mkdir(parents=True, exist_ok=True)
            print(f"--- {case.title}  seed {case.seed}", flush=True)
            with folder.held():
                progress = Progress(sys.stdout)
                try:
                    carry_out(study.settled(case), folder, progress)
                except KeyboardInterrupt:
                    progress.end()
                    raise
    return []


def _side_by_side(args: argparse.Namespace, study: Study, cases: list[Case]) -> list[str]:
    """Each run is a process of its own, which is `meristem grow` itself; what it says goes to a file."""
    waiting, failed = list(cases), list[str]()
    going: dict[Case, subprocess.Popen[bytes]] = {}
    try:
        while waiting or going:
            waiting = [case for case in waiting if study.result(case) is None]
            ready = [case for case in waiting if _can_start(case, study)]
            if ready and len(going) < int(args.jobs):
                case = ready[0]
                waiting.remove(case)
                going[case] = _started(args, study, case)
                print(f"started {case.title}  seed {case.seed}", flush=True)
                continue
            if not going:  # direct designs whose grown network failed
                return [*failed, *(f"{case.title} seed {case.seed} had no grown network" for case in waiting)]
            for case, process in list(going.items()):
                try:
                    code = process.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    continue
                del going[case]
                print(f"{'failed' if code else 'finished'} {case.title}  seed {case.seed}", flush=True)
                if code:
                    failed.append(f"see {_log(study, case)}")
    finally:  # an interruption reaches the children too; they keep what is finished
        for process in going.values():
            process.terminate()
            process.wait()
    return failed


def _can_start(case: Case, study: Study) -> bool:
    """A direct design waits for the grown network, and for the uniform one, which may be the same."""
    others = (dataclasses.replace(case, arm=arm) for arm in (GROWN, "uniform") if arm in study.arms)
    return case.arm != "direct" or all(study.result(other) is not None for other in others)


def _started(args: argparse.Namespace, study: Study, case: Case) -> subprocess.Popen[bytes]:
    folder, run = study.folder(case), study.settled(case)
    folder.path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "meristem", "grow", args.recipe or "digits"]
    if args.model:
        command += ["--model", args.model]
    if folder.description.exists():
        command += ["--resume", str(folder.path)]
    else:
        settings = {name: value for name, value in run.settings.items() if value is not None}
        command += ["--out", str(folder.path), *(f"--set={name}={value}" for name, value in settings.items())]
    with _log(study, case).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def _log(study: Study, case: Case) -> Path:
    path = study.folder(case).path
    return path.with_name(f"{path.name}.log")
