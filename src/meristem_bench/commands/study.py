"""``meristem grow --seeds`` and ``meristem sweep``: several runs, one table."""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from meristem.control.budget import Budget
from meristem.errors import MeristemError
from meristem_bench.commands.arguments import given_settings, whole_number
from meristem_bench.commands.recipes import recipe
from meristem_bench.commands.report import check_drawing, drawn, how_to_draw
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import carry_out
from meristem_bench.runs.run import DENSE, DIRECT, MOVABLE, Run
from meristem_bench.show.progress import Progress
from meristem_bench.show.result_tables import comparison_table
from meristem_bench.show.tensorboard import run_with_tensorboard
from meristem_bench.studies.study import GROWN, UNIFORM, Case, Study


def seeds(args: argparse.Namespace) -> int:
    """One method over several seeds; with --with-dense the full model too."""
    source = args.recipe or "digits"
    run = _shared_run(args, source)
    if args.resume is not None:
        raise MeristemError("runs of several seeds go on when the same command is given again: leave out --resume")
    if run.method == DENSE or not args.with_dense:
        arms: tuple[str, ...] = (GROWN,)
    else:
        arms = (GROWN, DENSE)
    out = Path(args.out or Path("runs") / f"{run.name}-seeds")
    study = Study(source, run, arms, (run.budget,), _seeds(args, run), out, threads=_threads(args))
    return _carry_out(args, [study], out)


def sweep(args: argparse.Namespace) -> int:
    """Several budgets, each with a grown network and what it is compared with; of several recipes, if wanted."""
    if args.budgets is None and args.by:
        raise MeristemError(f"--by {args.by} says of what --budgets are shares: give both, or leave out both")
    sources = list(dict.fromkeys(each.strip() for each in (args.recipe or "digits").split(",")))
    runs = [_shared_run(args, source) for source in sources]
    out = Path(args.out or Path("runs") / f"{'-'.join(run.name for run in runs)}-sweep")
    arms = tuple(arm.strip() for arm in args.arms.split(","))
    studies = []
    for source, run in zip(sources, runs, strict=True):
        given = [_budget(run, args.by, amount) for amount in args.budgets.split(",")] if args.budgets else [run.budget]
        budgets = tuple({str(budget): budget for budget in reversed(given)}.values())[::-1]  # 20% and 0.2 are one
        own = out / run.name if len(runs) > 1 else out
        more: dict[str, Any] = {"by_budget": True, "threads": _threads(args)}
        studies.append(Study(source, run, arms, budgets, _seeds(args, run), own, **more))
    if len({study.out for study in studies}) < len(studies):
        raise MeristemError(f"two of the recipes {', '.join(sources)} have the same name; sweep them one by one")
    if len(judged := dict.fromkeys(run.task.headline for run in runs)) > 1:
        raise MeristemError(
            f"the recipes are judged by {' and '.join(judged)}, which is no one table: sweep them one by one"
        )
    return _carry_out(args, studies, out)


def _shared_run(args: argparse.Namespace, source: str) -> Run:
    return recipe(source, args.model).with_settings(given_settings(args))


def _threads(args: argparse.Namespace) -> int:
    return max(1, torch.get_num_threads() // whole_number("--jobs", args.jobs))


def _seeds(args: argparse.Namespace, run: Run) -> tuple[int, ...]:
    return tuple(range(run.seed, run.seed + whole_number("--seeds", args.seeds)))


def _budget(run: Run, metric: str | None, amount: str) -> Budget:
    metric = metric or ("params" if run.budget.params is not None else "macs")
    return Budget.parse(f"{metric}={amount.strip()}")


def _carry_out(args: argparse.Namespace, studies: Sequence[Study], out: Path) -> int:
    """All runs of all studies, whose folders are ``out`` or in it, and one table of what is known afterwards."""
    if args.report:
        check_drawing()
    for folder in dict.fromkeys((out, *(study.out for study in studies))):
        if Folder(folder).description.exists():
            raise MeristemError(f"{folder} holds a single run; several need a folder of their own: give another --out")
    for study in studies:  # what is wrong is told before hours of training
        for case in study.cases():
            study.settled(case)
    for study in studies:
        _make(study.out)
    waiting = {study.source: [case for case in study.cases() if not _done(args, study, case)] for study in studies}
    failed: list[str] = []
    try:
        for study in studies:
            run_all = _in_turn if int(args.jobs) == 1 else _side_by_side
            failed += run_all(args, study, waiting[study.source])
    except KeyboardInterrupt:
        print("meristem: stopped; every finished epoch is kept. To go on: the same command again", file=sys.stderr)
        return 130
    finally:
        for folder in (*(study.out for study in studies), out):
            if folder.is_dir() and not os.listdir(folder):
                folder.rmdir()
    _show(args, studies, out)
    begun = [(study, case) for study in studies for case in waiting[study.source]]
    missing = sum(study.result(case) is None for study, case in begun)
    if failed and missing:  # what was refused here may have been finished by another process that had begun it
        raise MeristemError(f"{missing} of {len(begun)} runs failed: {'; '.join(failed)}")
    return 0


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MeristemError(f"{folder} cannot be made ({error.strerror}); give another --out") from None


def _show(args: argparse.Namespace, studies: Sequence[Study], out: Path) -> None:
    several = len(studies) > 1
    rows = [
        (f"{study.run.name}  {title}" if several else title, found)
        for study in studies
        for title, found in study.rows()
    ]
    if rows:
        paths = [str(study.write_table()) for study in studies if study.rows()]
        print(f"\n{comparison_table(rows)}\n")
        print(f"Everything is in {out}; this table, one line per run, in {', '.join(paths)}")
        print(drawn(out) if args.report else how_to_draw(out))


def _in_turn(args: argparse.Namespace, study: Study, cases: list[Case]) -> list[str]:
    """One that fails does not keep the others from being run; returns why, and which."""
    failed: dict[str, list[str]] = {}
    for case in cases:
        if _done(args, study, case):  # a direct design may have become known meanwhile
            continue
        print(f"--- {case.title}  seed {case.seed}", flush=True)
        folder, progress, reason = study.folder(case), Progress(sys.stdout, plain=True), "there is no grown network"
        try:
            if _can_start(case, study, ()):
                folder.path.mkdir(parents=True, exist_ok=True)
                with folder.held():
                    (run_with_tensorboard if args.tensorboard else carry_out)(study.settled(case), folder, progress)
                continue
        except MeristemError as error:
            reason = str(error)
        except Exception as error:  # the user's own code may fail in any way, and the others are still to be run
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
        finally:
            progress.end()
        print("failed", flush=True)
        failed.setdefault(reason, []).append(f"{case.title} seed {case.seed}")
    return [f"{', '.join(which)}: {reason}" for reason, which in failed.items()]


def _side_by_side(args: argparse.Namespace, study: Study, cases: list[Case]) -> list[str]:
    """Each run is a process of its own, which is `meristem grow` itself; what it says goes to a file."""
    waiting, failed = list(cases), list[str]()
    going: dict[Case, subprocess.Popen[bytes]] = {}
    try:
        while waiting or going:
            waiting = [case for case in waiting if not _done(args, study, case)]
            ready = [case for case in waiting if _can_start(case, study, (*waiting, *going))]
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


def _done(args: argparse.Namespace, study: Study, case: Case) -> bool:
    """Whether there is nothing left to do; graphs may still be wanted of a run that is finished."""
    return study.result(case) is not None and not (args.tensorboard and not study.folder(case).graphs.exists())


def _can_start(case: Case, study: Study, to_come: Collection[Case]) -> bool:
    """A direct design needs the grown network, and waits for the uniform one, which may be the same."""
    grown, uniform = (dataclasses.replace(case, arm=arm) for arm in (GROWN, UNIFORM))
    return case.arm != DIRECT or (study.result(grown) is not None and uniform not in to_come)


def _started(args: argparse.Namespace, study: Study, case: Case) -> subprocess.Popen[bytes]:
    folder, run = study.folder(case), study.settled(case)
    folder.path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "meristem", "grow", study.source]
    if args.model:
        command += ["--model", args.model]
    if args.tensorboard:
        command += ["--tensorboard"]
    if folder.description.exists():
        command += ["--resume", str(folder.path)]
        names: Collection[str] = MOVABLE
    else:
        command += ["--out", str(folder.path)]
        names = run.settings
    command += [f"--set={name}={run.settings[name]}" for name in names if run.settings[name] is not None]
    with _log(study, case).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def _log(study: Study, case: Case) -> Path:
    path = study.folder(case).path
    return path.with_name(f"{path.name}.log")
