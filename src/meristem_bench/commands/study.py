"""``meristem grow --seeds`` and ``meristem sweep``: several runs, one table."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from meristem.control.budget import Budget
from meristem.errors import MeristemError
from meristem_bench.commands.arguments import settings_from_flags, whole_number
from meristem_bench.commands.report import report_hint, require_matplotlib, write_report_into
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.run import Run
from meristem_bench.show.graph_writers import wanted_graphs
from meristem_bench.show.result_tables import comparison_table
from meristem_bench.show.table_files import write_table_files
from meristem_bench.studies.arm import GROWN
from meristem_bench.studies.execution import is_done, run_cases
from meristem_bench.studies.latencies import measure_latencies
from meristem_bench.studies.on_ray import connected, run_on_ray
from meristem_bench.studies.study import Case, Study
from meristem_bench.studies.table_progress import TableProgress


def seeds(args: argparse.Namespace) -> int:
    """One method over several seeds; with --with-dense the full model too."""
    source = args.recipe or "digits"
    run = _shared_run(args, source)
    if args.resume is not None:
        raise MeristemError("runs of several seeds go on when the same command is given again: leave out --resume")
    arms = (GROWN, "dense") if args.with_dense and not run.growth.policies.ignores_budget else (GROWN,)
    out = Path(args.out or Path("runs") / f"{run.name}-seeds")
    study = Study(source, run, arms, (run.growth.budget,), _seeds(args, run), out, threads=_threads(args))
    return _run_studies(args, [study], out)


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
        folder = out / run.name if len(runs) > 1 else out
        more: dict[str, Any] = {"by_budget": True, "threads": _threads(args)}
        studies.append(Study(source, run, arms, _budgets(args, run), _seeds(args, run), folder, **more))
    if len({study.out for study in studies}) < len(studies):
        raise MeristemError(f"two of the recipes {', '.join(sources)} have the same name; sweep them one by one")
    if len(headlines := dict.fromkeys(run.task.headline for run in runs)) > 1:
        raise MeristemError(
            f"the recipes are judged by {' and '.join(headlines)}, which is no one table: sweep them one by one"
        )
    return _run_studies(args, studies, out)


def _shared_run(args: argparse.Namespace, source: str) -> Run:
    return find_run(source, args.model).with_settings(settings_from_flags(args))


def _threads(args: argparse.Namespace) -> int:
    """Of a run whose settings do not say: an equal share of this machine's, or one where Ray places the runs."""
    jobs = whole_number("--jobs", args.jobs)
    if getattr(args, "ray", None) is None:
        return max(1, torch.get_num_threads() // jobs)
    if jobs > 1:
        raise MeristemError("--ray runs as many at a time as the cluster has room for: leave out --jobs")
    return 1


def _seeds(args: argparse.Namespace, run: Run) -> tuple[int, ...]:
    return tuple(range(run.seed, run.seed + whole_number("--seeds", args.seeds)))


def _budgets(args: argparse.Namespace, run: Run) -> tuple[Budget, ...]:
    """Those of --budgets, each once (20% and 0.2 are one), or else that of the recipe."""
    if not args.budgets:
        return (run.growth.budget,)
    metric = args.by or ("params" if run.growth.budget.params is not None else "macs")
    budgets = [Budget.parse(f"{metric}={amount.strip()}") for amount in args.budgets.split(",")]
    return tuple({str(budget): budget for budget in reversed(budgets)}.values())[::-1]


def _run_studies(args: argparse.Namespace, studies: Sequence[Study], out: Path) -> int:
    """Run all that is not finished of the studies, whose folders are ``out`` or in it, and show one table."""
    if args.report:
        require_matplotlib()
    ray = getattr(args, "ray", None)
    for folder in dict.fromkeys((out, *(study.out for study in studies))):
        if Folder(folder).description.exists():
            raise MeristemError(f"{folder} holds a single run; several need a folder of their own: give another --out")
    for study in studies:  # refuses what is wrong before hours of training
        for case in study.cases():
            study.run_of(case)
    for study in studies:
        _make(study.out)
    graphs = wanted_graphs(args)
    waiting = {study.source: [case for case in study.cases() if not is_done(study, case, graphs)] for study in studies}
    failures: list[str] = []
    progress = _progress(studies, waiting, int(args.jobs))
    try:
        with nullcontext() if ray is None else connected(ray):
            for study in studies:
                if ray is None:
                    failures += run_cases(study, waiting[study.source], int(args.jobs), graphs, progress)
                else:
                    failures += run_on_ray(study, waiting[study.source], graphs, progress)
        for study in studies:
            for note in measure_latencies(study):
                print(note)
    except KeyboardInterrupt:
        print("meristem: stopped; every finished epoch is kept. To go on: the same command again", file=sys.stderr)
        return 130
    finally:
        for folder in (*(study.out for study in studies), out):
            if folder.is_dir() and not os.listdir(folder):
                folder.rmdir()
    _show(args, studies, out, failures)
    attempted = [(study, case) for study in studies for case in waiting[study.source]]
    missing = sum(study.result(case) is None for study, case in attempted)
    if failures and missing:  # what was refused here may have been finished by another process that had begun it
        raise MeristemError(f"{missing} of {len(attempted)} runs failed: {'; '.join(failures)}")
    return 0


def _progress(studies: Sequence[Study], waiting: Mapping[str, Sequence[Case]], jobs: int) -> TableProgress:
    """Of the whole table; runs that are finished already say how long the others of their arm will take."""
    finished = [
        (case.arm, float(result["seconds"]))
        for study in studies
        for case in study.cases()
        if case not in waiting[study.source] and (result := study.result(case)) is not None
    ]
    return TableProgress([case.arm for study in studies for case in waiting[study.source]], finished, jobs)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MeristemError(f"{folder} cannot be made ({error.strerror}); give another --out") from None


def _show(args: argparse.Namespace, studies: Sequence[Study], out: Path, failures: Sequence[str]) -> None:
    several = len(studies) > 1
    rows = [
        (f"{study.run.name}  {title}" if several else title, results)
        for study in studies
        for title, results in study.rows()
    ]
    if rows:
        paths = [str(study.write_table()) for study in studies if study.rows()]
        print(f"\n{comparison_table(rows)}\n")
        files = " and ".join(str(path) for path in write_table_files(out, rows, failures))
        print(f"Everything is in {out}; this table in {files}, one line per run in {', '.join(paths)}")
        print(write_report_into(out) if args.report else report_hint(out))
