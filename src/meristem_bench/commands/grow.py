"""``meristem grow``: start or resume a run, show how it goes, end with a table."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

import torch

from meristem.errors import DataError, MeristemError
from meristem_bench.commands import study
from meristem_bench.commands.arguments import settings_from_flags
from meristem_bench.commands.report import report_hint, require_matplotlib, write_report_into
from meristem_bench.recipes.lookup import find_run, run_in_folder
from meristem_bench.runs.description import CHANGEABLE_ON_RESUME, may_change
from meristem_bench.runs.folder import Folder, free_folder, latest_folder
from meristem_bench.runs.loop import run_to_end
from meristem_bench.runs.result import Result, finished_result
from meristem_bench.runs.run import Run
from meristem_bench.show.progress import ProgressDisplay
from meristem_bench.show.result_tables import result_table
from meristem_bench.show.tensorboard import require_tensorboard, run_with_tensorboard

_DEFAULT = "digits"


def grow(args: argparse.Namespace) -> int:
    if args.tensorboard:
        require_tensorboard()
    if args.seeds is not None:
        return study.seeds(args)
    if args.report:
        require_matplotlib()
    settings = settings_from_flags(args)
    folder, run = _new_run(args, settings) if args.resume is None else _resumed_run(args, settings)
    progress = ProgressDisplay(sys.stdout, plain=args.plain)
    try:
        with folder.lock():
            result, dense = _run_with_dense(args, run, folder, progress)
    except KeyboardInterrupt:
        progress.end()  # before anything is said
        return _stopped(args, folder)
    except DataError as error:
        if not folder.description.exists():
            raise
        raise DataError(
            f"{error}. Every finished epoch is kept; once that is fixed: {_resume_command(args, folder)}"
        ) from None
    finally:
        progress.end()
    print()
    print(result_table(result, dense))
    if dense is None and not run.growth.policies.ignores_budget:
        command = f"meristem grow{_recipe_flag(args)} --resume {shlex.quote(str(folder.path))} --with-dense"
        print(f"\nTo train the full model for comparison: {command}")
    print(f"\nEverything is in {folder.path}; the network itself in {folder.model}")
    print(write_report_into(folder.path) if args.report else report_hint(folder.path))
    return 0


def _run_with_dense(
    args: argparse.Namespace, run: Run, folder: Folder, progress: ProgressDisplay
) -> tuple[Result, Result | None]:
    """The result of the run, then that of the full model if it is wanted or was begun before."""
    result = _result(args, run, folder, progress)
    if run.growth.policies.ignores_budget or not (args.with_dense or folder.dense.description.exists()):
        return result, None
    return result, _result(args, run.replace(method="dense", cost_of=None), folder.dense, progress)


def _result(args: argparse.Namespace, run: Run, folder: Folder, progress: ProgressDisplay) -> Result:
    if args.tensorboard:
        return run_with_tensorboard(run, folder, progress)
    return finished_result(folder) or run_to_end(run, folder, progress)


def _stopped(args: argparse.Namespace, folder: Folder) -> int:
    if not folder.description.exists():
        print("meristem: stopped before the first step; nothing is left behind", file=sys.stderr)
        return 130
    print(
        f"meristem: stopped; every finished epoch is kept. To go on: {_resume_command(args, folder)}", file=sys.stderr
    )
    return 130


def _resume_command(args: argparse.Namespace, folder: Folder) -> str:
    command = f"meristem grow{_recipe_flag(args)} --resume {shlex.quote(str(folder.path))}"
    flags = {
        " --with-dense": args.with_dense,
        " --tensorboard": args.tensorboard,
        " --report": args.report,
        " --plain": args.plain,
    }
    return command + "".join(flag for flag, is_set in flags.items() if is_set)


def _recipe_flag(args: argparse.Namespace) -> str:
    """A recipe or model of the user's own must be named again: what a file says is never imported."""
    flag = f" {shlex.quote(args.recipe)}" if args.recipe and ":" in args.recipe else ""
    return flag + (f" --model {shlex.quote(args.model)}" if args.model else "")


# --- from arguments to a run --------------------------------------------------------------------------------------


def _new_run(args: argparse.Namespace, settings: dict[str, str]) -> tuple[Folder, Run]:
    run = find_run(args.recipe or _DEFAULT, args.model).with_settings(settings)
    if not run.machine.threads:  # fixed now, so that a resumed run adds up its sums in the same order
        run = run.replace(threads=torch.get_num_threads())
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
