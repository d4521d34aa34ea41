"""Runs that differ in their seeds alone are one experiment, whose curves are a mean and a band."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meristem_bench.report.page_text import legible
from meristem_bench.report.reported_run import FloatArray, ReportedRun, number
from meristem_bench.runs.result import trains_full_model

# Settings that make no other experiment; that a run is trained at equal cost does, whichever run that is the cost of.
_IGNORED = frozenset({"seed", "data_dir", "workers", "threads", "widths", "cost_of"})


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and the standard deviation; NaN where no run has a value."""

    mean: FloatArray
    deviation: FloatArray

    @property
    def has_values(self) -> bool:
        return bool(np.isfinite(self.mean).any())

    def times(self, factor: float) -> Spread:
        return Spread(factor * self.mean, factor * self.deviation)


@dataclass(frozen=True)
class Experiment:
    """Runs of one experiment, over its seeds."""

    title: str
    runs: tuple[ReportedRun, ...]

    @property
    def first(self) -> ReportedRun:
        return self.runs[0]

    @cached_property
    def epochs(self) -> FloatArray:
        """Every epoch that some run has a record of."""
        return np.unique(np.concatenate([run.epochs for run in self.runs])) if self.runs else np.array([])

    def over_seeds(self, curve: Callable[[ReportedRun], FloatArray]) -> Spread:
        """Mean and deviation over the seeds of what ``curve`` gives for each run, one value per epoch."""
        values = np.full((len(self.runs), len(self.epochs)), np.nan)
        for row, run in zip(values, self.runs, strict=True):
            row[np.searchsorted(self.epochs, run.epochs)] = curve(run)
        return spread(values)

    def column(self, *path: str) -> Spread:
        return self.over_seeds(lambda run: run.column(*path))

    def finals(self, *path: str) -> FloatArray:
        """One number of every finished run's result."""
        return np.array([number(run.result, path) for run in self.runs if run.result is not None], dtype=np.float64)

    @property
    def spends(self) -> FloatArray:
        """The training cost of each finished run, that of growing included if it trains what another run has grown."""
        total = self.finals("total_spend_frac")
        return np.where(np.isfinite(total), total, self.finals("spend_frac"))


def spread(values: FloatArray) -> Spread:
    """Mean and deviation over the first axis; the deviation of one value is zero."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an epoch of which no run has a value stays NaN
        mean = np.nanmean(values, axis=0)
        several = np.isfinite(values).sum(axis=0) > 1
        return Spread(mean, np.where(several, np.nanstd(values, axis=0, ddof=1), 0.0))


def group_by_experiment(runs: Sequence[ReportedRun]) -> list[Experiment]:
    """The experiments of these runs, each named by what it differs in from the others."""
    runs_by_key: dict[tuple[Any, ...], list[ReportedRun]] = {}
    for run in runs:
        runs_by_key.setdefault(_experiment_key(run), []).append(run)
    by_seed = [sorted(same, key=lambda run: str(run.seed)) for same in runs_by_key.values()]
    titles = _titles([seeds[0] for seeds in by_seed])
    return [Experiment(title, tuple(seeds)) for title, seeds in zip(titles, by_seed, strict=True)]


def group_by_arm(experiments: Sequence[Experiment]) -> list[tuple[str, list[Experiment]]]:
    """Experiments that differ in their budgets alone, named by what else they differ in from the others."""
    arms: dict[tuple[Any, ...], list[Experiment]] = {}
    for experiment in experiments:
        arms.setdefault(_experiment_key(experiment.first, _IGNORED | {"budget"}), []).append(experiment)
    firsts = [budgets[0].first for budgets in arms.values()]
    titles = _titles(firsts, _IGNORED | {"budget"}) if len(firsts) > 1 else [_arm_of(run) for run in firsts]
    return list(zip(titles, arms.values(), strict=True))


def _experiment_key(run: ReportedRun, ignored: Set[str] = _IGNORED) -> tuple[Any, ...]:
    """What is equal for runs of one experiment."""
    ignored = ignored | ({"budget"} if _has_no_budget(run) else set())
    settings = sorted((key, str(value)) for key, value in run.settings.items() if key not in ignored)
    return (run.name, run.network, run.at_equal_cost, *settings) if run.settings else (run.name, str(run.path))


def _titles(runs: Sequence[ReportedRun], ignored: Set[str] = _IGNORED) -> list[str]:
    if len(runs) == 1:
        return [runs[0].name]
    keys = [key for key in dict.fromkeys(key for run in runs for key in run.settings) if key not in ignored]
    differ = [key for key in keys if len({str(run.settings.get(key)) for run in runs if _has(run, key)}) > 1]
    several = len({(run.name, run.network) for run in runs}) > 1
    titles = [_title(run, several, differ) for run in runs]
    titles = [
        f"{title} ({legible(run.folder, 30)})" if titles.count(title) > 1 else title
        for title, run in zip(titles, runs, strict=True)
    ]
    earlier = [titles[:place].count(title) for place, title in enumerate(titles)]
    return [f"{title} {count + 1}" if count else title for title, count in zip(titles, earlier, strict=True)]


def _has(run: ReportedRun, key: str) -> bool:
    return key in run.settings and not (_has_no_budget(run) and key == "budget")


def _has_no_budget(run: ReportedRun) -> bool:
    """Whether the budget says nothing of a run: the full model, unless it costs what a run of that budget does."""
    return run.is_reference


def _title(run: ReportedRun, several: bool, differ: Sequence[str]) -> str:
    words = [word for word in (run.name, run.network) if word] if several else []
    if ("method" in differ and _has(run, "method")) or run.at_equal_cost:
        words.append(_arm_of(run))
    if "budget" in differ and _has(run, "budget"):
        words.append(str(run.settings.get("budget")))
    words += [f"{key}={run.settings.get(key)}" for key in differ if key not in ("method", "budget") and _has(run, key)]
    return legible(", ".join(words) or run.name, 60)


def _arm_of(run: ReportedRun) -> str:
    return f"{arm_title(run.method)} at equal cost" if run.at_equal_cost else arm_title(run.method)


def arm_title(method: str) -> str:
    """A method as people call it in a comparison."""
    if trains_full_model(method):
        return "full model"
    return "grown" if method == "default" else legible(method, 40)
