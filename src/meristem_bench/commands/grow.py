"""``meristem grow``: start or resume a run, show how it goes, end with a table."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

import torch

from meristem.errors import DataError, MeristemError
from meristem_bench.commands import study
from meristem_bench.commands.arguments import settings_from_flags, whole_number
from meristem_bench.commands.launch import run_ranks
from meristem_bench.commands.report import report_hint, require_matplotlib, write_report_into
from meristem_bench.recipes.lookup import find_run, run_in_folder
from meristem_bench.runs.description import CHANGEABLE_ON_RESUME, may_change
from meristem_bench.runs.folder import Folder, free_folder, latest_folder
from meristem_bench.runs.loop import run_to_end
from meristem_bench.runs.observers import RunObserver, Silent
from meristem_bench.runs.processes import (
    LOST_CONTACT,
    ReportedByRank0Error,
    by_rank_0,
    check_count,
    is_lost_contact,
    joined,
    launched,
    leads,
    rank,
    rank_count,
    restarts,
)
from meristem_bench.runs.result import Result, finished_result
from meristem_bench.runs.run import Run
from meristem_bench.show.graph_writers import make_writers, wanted_graphs
from meristem_bench.show.graphs import run_with_graphs
from meristem_bench.show.notebook import make_progress
from meristem_bench.show.result_tables import result_table

_DEFAULT = "digits"


def grow(args: argparse.Namespace) -> int:
    wanted_graphs(args)
    if args.seeds is not None:
        _refuse_processes(args, "runs of several seeds")
        return study.seeds(args)
    if args.report:
        require_matplotlib()
    if launched():
        return _grow_as_rank(args)
    wanted = 1 if args.processes is None else whole_number("--processes", args.processes)
    folder, run = _folder_and_run(args)
    if wanted > 1:
        return _start_ranks(args, folder, wanted)
    return _grow(args, folder, run)


def _grow(args: argparse.Namespace, folder: Folder, run: Run) -> int:
    """Take the run to its end and show what came out; of several processes rank 0 does all that is seen."""
    speaks = not rank()
    progress = make_progress(args.plain)
    try:
        with folder.lock() if speaks else nullcontext():
            result, dense = _run_with_dense(args, run, folder, progress if speaks else Silent())
    except KeyboardInterrupt:
        progress.end()  # before anything is said
        return _stopped(args, folder) if speaks else 130
    except DataError as error:
        if not folder.description.exists():
            raise
        raise DataError(
            f"{error}. Every finished epoch is kept; once that is fixed: {_resume_command(args, folder)}"
        ) from None
    finally:
        progress.end()
    return _show(args, run, folder, result, dense) if speaks else 0


def _show(args: argparse.Namespace, run: Run, folder: Folder, result: Result, dense: Result | None) -> int:
    print()
    print(result_table(result, dense))
    if dense is None and not run.growth.policies.ignores_budget:
        print(f"\nTo train the full model for comparison: {_resume_command(args, folder, dense=True)}")
    print(f"\nEverything is in {folder.path}; the network itself in {folder.model}")
    print(write_report_into(folder.path) if args.report else report_hint(folder.path))
    return 0


# --- several processes --------------------------------------------------------------------------------------------


def _start_ranks(args: argparse.Namespace, folder: Folder, count: int) -> int:
    """Start this command once more, as the ranks of a run in ``folder``."""
    place = ["--out" if args.resume is None else "--resume", str(folder.path)]
    return run_ranks(count, [*args.words, *place], _resume_command(args, folder))


def _grow_as_rank(args: argparse.Namespace) -> int:
    """Grow as one of the processes that torchrun has started."""
    try:
        with joined():
            return _grow_among_ranks(args)
    except ReportedByRank0Error:
        return 2
    except RuntimeError as error:
        if not is_lost_contact(error):
            raise
        if args.processes is None and leads():  # otherwise the process that has started the ranks tells
            print("\nmeristem: another process of this run has ended; finished epochs are kept", file=sys.stderr)
        return LOST_CONTACT


def _grow_among_ranks(args: argparse.Namespace) -> int:
    if args.processes is not None:
        check_count(whole_number("--processes", args.processes))
    path, resumes = by_rank_0(lambda: _folder_of_ranks(args))
    args.resume = path if resumes else None
    folder = Folder(Path(path))
    run = _resumed_run(args, settings_from_flags(args))[1] if resumes else _run_of(args)
    return _grow(args, folder, run)


def _folder_of_ranks(args: argparse.Namespace) -> tuple[str, bool]:
    """Where the ranks run, and whether they go on with what is there: also when torchrun has started them anew."""
    started_anew, may_start_anew = restarts()
    if may_start_anew and not (args.out or args.resume):
        raise MeristemError(
            f"torchrun may start this run anew ({may_start_anew} times), which then has to find what it has done: give "
            f"it a folder, --out DIR"
        )
    if args.resume is None and started_anew and Folder(Path(args.out)).description.exists():
        return args.out, True
    folder, _ = _folder_and_run(args)
    return str(folder.path), args.resume is not None


def _refuse_processes(args: argparse.Namespace, what: str) -> None:
    if args.processes is not None or launched():
        raise MeristemError(f"{what} are trained in one process each, several at the same time by --jobs")


def _run_with_dense(
    args: argparse.Namespace, run: Run, folder: Folder, progress: RunObserver
) -> tuple[Result, Result | None]:
    """The result of the run, then that of the full model if it is wanted or was begun before."""
    result = _result(args, run, folder, progress)
    wanted = by_rank_0(lambda: args.with_dense or folder.dense.description.exists())
    if run.growth.policies.ignores_budget or not wanted:
        return result, None
    return result, _result(args, run.replace(method="dense", cost_of=None), folder.dense, progress)


def _result(args: argparse.Namespace, run: Run, folder: Folder, progress: RunObserver) -> Result:
    writers = make_writers(wanted_graphs(args))
    if rank_count() == 1:
        return run_with_graphs(run, folder, progress, writers)
    result = by_rank_0(lambda: finished_result(folder))
    if result is None and not rank():
        return run_with_graphs(run, folder, progress, writers)
    return result or run_to_end(run, folder, progress)


def _stopped(args: argparse.Namespace, folder: Folder) -> int:
    if not folder.description.exists():
        print("meristem: stopped before the first step; nothing is left behind", file=sys.stderr)
        return 130
    print(
        f"meristem: stopped; every finished epoch is kept. To go on: {_resume_command(args, folder)}", file=sys.stderr
    )
    return 130


def _resume_command(args: argparse.Namespace, folder: Folder, dense: bool = False) -> str:
    command = f"meristem grow{_recipe_flag(args)} --resume {shlex.quote(str(folder.path))}"
    if rank_count() > 1 or args.processes is not None:
        command += f" --processes {args.processes or rank_count()}"
    flags = {
        " --with-dense": args.with_dense or dense,
        **{f" --{name}": True for name in wanted_graphs(args)},
        " --report": args.report,
        " --plain": args.plain,
    }
    if dense:
        flags = {" --with-dense": True}
    return command + "".join(flag for flag, is_set in flags.items() if is_set)


def _recipe_flag(args: argparse.Namespace) -> str:
    """A recipe or model of the user's own must be named again: what a file says is never imported."""
    flag = f" {shlex.quote(args.recipe)}" if args.recipe and ":" in args.recipe else ""
    return flag + (f" --model {shlex.quote(args.model)}" if args.model else "")


# --- from arguments to a run --------------------------------------------------------------------------------------


def _folder_and_run(args: argparse.Namespace) -> tuple[Folder, Run]:
    settings = settings_from_flags(args)
    return _new_run(args, settings) if args.resume is None else _resumed_run(args, settings)


def _run_of(args: argparse.Namespace) -> Run:
    """A new run, with what it has to keep when it goes on: how its sums are added up."""
    run = find_run(args.recipe or _DEFAULT, args.model).with_settings(settings_from_flags(args))
    if run.machine.processes not in (1, rank_count()):
        raise MeristemError("processes are not set but started: give --processes N, or start the command by torchrun")
    threads = run.machine.threads or max(1, torch.get_num_threads() // rank_count())
    return run.replace(threads=threads, processes=rank_count())


def _new_run(args: argparse.Namespace, settings: dict[str, str]) -> tuple[Folder, Run]:
    run = _run_of(args)
    if not args.out:
        return free_folder(_default_folder(run)), run
    folder = Folder(Path(args.out))
    folder.reserve()
    return folder, run


def _default_folder(run: Run) -> Path:
    return Path("runs") / f"{run.name}-seed{run.seed}"


def _resumed_run(args: argparse.Namespace, settings: dict[str, str]) -> tuple[Folder, Run]:
    """The run to go on with; refuses other settings than it was started with, if they decide the outcome."""
    if args.resume and args.out and Path(args.resume).resolve() != Path(args.out).resolve():
        raise MeristemError(f"a run goes on where it is: leave out --out {args.out}, or start a new run there")
    if args.resume or args.out:
        folder = Folder(Path(args.resume or args.out))
    else:
        folder = latest_folder(_default_folder(find_run(args.recipe or _DEFAULT, args.model).with_settings(settings)))
    run = run_in_folder(folder, args.recipe, args.model, f"meristem grow MODULE:FUNCTION --resume {folder.path}")
    settings_now = run.with_settings(settings).settings
    changeable = {setting: settings_now[setting] for setting in CHANGEABLE_ON_RESUME}
    for setting, value in settings_now.items():
        if not may_change(setting, run.settings[setting], value):
            raise MeristemError(
                f"the run in {folder.path} was started with {setting}={run.settings[setting]}, not {value}: "
                f"leave that out to go on with it, or start a new run with another --out"
            )
    return folder, run.with_settings(changeable)
