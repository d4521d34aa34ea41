"""Running the cases of a study: one after the other in this process, or several at the same time in their own."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path

from meristem.errors import MeristemError
from meristem_bench.runs.description import CHANGEABLE_ON_RESUME
from meristem_bench.show.graph_writers import have_graphs, make_writers
from meristem_bench.show.graphs import run_with_graphs
from meristem_bench.show.progress import ProgressDisplay
from meristem_bench.studies.study import Case, Study
from meristem_bench.studies.table_progress import TableProgress

_POLL_SECONDS = 0.2


def run_cases(
    study: Study, cases: Sequence[Case], jobs: int, graphs: Collection[str], progress: TableProgress
) -> list[str]:
    """Run the cases, ``jobs`` at the same time; returns which failed, and why. ``progress`` is that of the table."""
    if jobs == 1:
        return run_in_sequence(study, cases, graphs, progress)
    return run_in_parallel(study, cases, jobs, graphs, progress)


def is_done(study: Study, case: Case, graphs: Collection[str]) -> bool:
    """Whether there is nothing left to do; graphs may still be wanted of a finished run."""
    return study.result(case) is not None and have_graphs(study.folder(case), graphs)


def run_in_sequence(study: Study, cases: Sequence[Case], graphs: Collection[str], table: TableProgress) -> list[str]:
    """Run the cases one after the other. One that fails does not keep the others from being run."""
    failed_by_reason: dict[str, list[str]] = {}
    many_runs = len(study.seeds) * len(study.budgets) > 1  # of which bars would be too much to read
    for case in cases:
        if is_done(study, case, graphs):  # a direct design may have got its result meanwhile
            table.end(case.arm)
            continue
        print(f"--- {case.title}  seed {case.seed}  ({table})", flush=True)
        table.begin(case.arm)
        folder, reason = study.folder(case), "there is no grown network"
        progress = ProgressDisplay(sys.stdout, plain=many_runs)
        try:
            if study.can_start(case, unfinished=()):
                folder.path.mkdir(parents=True, exist_ok=True)
                with folder.lock():
                    run_with_graphs(study.run_of(case), folder, progress, make_writers(graphs))
                table.end(case.arm)
                continue
        except MeristemError as error:
            reason = str(error)
        except Exception as error:  # the user's own code may fail in any way, and the others are still to be run
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
        finally:
            progress.end()
        table.end(case.arm, failed=True)
        print("failed", flush=True)
        failed_by_reason.setdefault(reason, []).append(f"{case.title} seed {case.seed}")
    return [f"{', '.join(failed)}: {reason}" for reason, failed in failed_by_reason.items()]


def run_in_parallel(
    study: Study, cases: Sequence[Case], jobs: int, graphs: Collection[str], table: TableProgress
) -> list[str]:
    """Run each case in a process of its own, which is `meristem grow` itself and prints to a file."""
    waiting, failures = list(cases), list[str]()
    processes: dict[Case, subprocess.Popen[bytes]] = {}
    try:
        while waiting or processes:
            for case in [each for each in waiting if is_done(study, each, graphs)]:
                waiting.remove(case)
                table.end(case.arm)
            ready = [case for case in waiting if study.can_start(case, unfinished=(*waiting, *processes))]
            if ready and len(processes) < jobs:
                case = ready[0]
                waiting.remove(case)
                processes[case] = _start(study, case, graphs)
                table.begin(case.arm)
                print(f"started {case.title}  seed {case.seed}", flush=True)
                continue
            if not processes:  # direct designs whose grown network failed
                return [*failures, *(f"{case.title} seed {case.seed} had no grown network" for case in waiting)]
            for case, code in _wait(processes).items():
                del processes[case]
                table.end(case.arm, failed=bool(code))
                print(f"{'failed' if code else 'finished'} {case.title}  seed {case.seed}  ({table})", flush=True)
                if code:
                    failures.append(f"see {log_path(study, case)}")
    finally:  # an interruption reaches the children too; they keep what is finished
        for process in processes.values():
            process.terminate()
            process.wait()
    return failures


def _wait(processes: dict[Case, subprocess.Popen[bytes]]) -> dict[Case, int]:
    """The exit codes of the processes that have ended, after a moment."""
    codes = {}
    for case, process in processes.items():
        try:
            codes[case] = process.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return codes


def _start(study: Study, case: Case, graphs: Collection[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "meristem", *grow_words(study, case, graphs)]
    study.folder(case).path.parent.mkdir(parents=True, exist_ok=True)
    with log_path(study, case).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def grow_words(study: Study, case: Case, graphs: Collection[str]) -> list[str]:
    """The words behind `meristem` that start the run of a case in another process, or go on with it."""
    folder, run = study.folder(case), study.run_of(case)
    words = ["grow", study.source]
    if run.network:
        words += ["--model", run.network]
    words += [f"--{name}" for name in graphs]
    if folder.description.exists():
        words += ["--resume", str(folder.path)]
        names: Collection[str] = CHANGEABLE_ON_RESUME
    else:
        words += ["--out", str(folder.path)]
        names = run.settings
    return [*words, *(f"--set={name}={run.settings[name]}" for name in names if run.settings[name] is not None)]


def log_path(study: Study, case: Case) -> Path:
    path = study.folder(case).path
    return path.with_name(f"{path.name}.log")
