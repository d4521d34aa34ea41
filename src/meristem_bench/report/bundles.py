"""Runs that differ in their seeds alone belong together: their curves are shown as a mean and a band."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meristem_bench.report.reading import FloatArray, Shown, legible, number

_IGNORED = frozenset({"seed", "data_dir", "workers", "threads", "widths"})  # that make no other experiment


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and the deviation from it; NaN where nothing is known."""

    mean: FloatArray
    deviation: FloatArray

    @property
    def known(self) -> bool:
        return bool(np.isfinite(self.mean).any())

    def times(self, factor: float) -> Spread:
        return Spread(factor * self.mean, factor * self.deviation)


@dataclass(frozen=True)
class Bundle:
    """Runs of one experiment, over its seeds."""

    title: str
    runs: tuple[Shown, ...]

    @property
    def first(self) -> Shown:
        return self.runs[0]

    @cached_property
    def epochs(self) -> FloatArray:
        """Every epoch that some run has a record of."""
        return np.unique(np.concatenate([run.epochs for run in self.runs])) if self.runs else np.array([])

    def over_seeds(self, curve: Callable[[Shown], FloatArray]) -> Spread:
        """What ``curve`` gives for each run, one value an epoch, put together."""
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
        """What each finished run cost to train; where widths were trained that another run has grown, with that."""
        total = self.finals("total_spend_frac")
        return np.where(np.isfinite(total), total, self.finals("spend_frac"))


def spread(values: FloatArray) -> Spread:
    """Over the first axis; a deviation of one value is zero."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an epoch that no run knows anything of stays NaN
        mean = np.nanmean(values, axis=0)
        several = np.isfinite(values).sum(axis=0) > 1
        return Spread(mean, np.where(several, np.nanstd(values, axis=0, ddof=1), 0.0))


def bundled(runs: Sequence[Shown]) -> list[Bundle]:
    """Runs put together by everything but their seeds, named by what they differ in."""
    found: dict[tuple[Any, ...], list[Shown]] = {}
    for run in runs:
        found.setdefault(_experiment(run), []).append(run)
    groups = [sorted(group, key=lambda run: str(run.seed)) for group in found.values()]
    titles = _titles([group[0] for group in groups])
    return [Bundle(title, tuple(group)) for title, group in zip(titles, groups, strict=True)]


def by_arm(bundles: Sequence[Bundle]) -> list[tuple[str, list[Bundle]]]:
    """Experiments that differ in their budgets alone, named by what else they differ in from the others."""
    found: dict[tuple[Any, ...], list[Bundle]] = {}
    for bundle in bundles:
        found.setdefault(_experiment(bundle.first, _IGNORED | {"budget"}), []).append(bundle)
    firsts = [points[0].first for points in found.values()]
    titles = _titles(firsts, _IGNORED | {"budget"}) if len(firsts) > 1 else [arm_word(run.method) for run in firsts]
    return list(zip(titles, found.values(), strict=True))


def _experiment(run: Shown, ignored: Set[str] = _IGNORED) -> tuple[Any, ...]:
    ignored = ignored | ({"budget"} if run.method == "dense" else set())
    settings = sorted((key, str(value)) for key, value in run.settings.items() if key not in ignored)
    return (run.name, run.network, *settings) if run.settings else (run.name, str(run.path))


def _titles(runs: Sequence[Shown], ignored: Set[str] = _IGNORED) -> list[str]:
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
    again = [titles[:place].count(title) for place, title in enumerate(titles)]
    return [f"{title} {count + 1}" if count else title for title, count in zip(titles, again, strict=True)]


def _has(run: Shown, key: str) -> bool:
    return key in run.settings and not (run.method == "dense" and key == "budget")


def _title(run: Shown, several: bool, differ: Sequence[str]) -> str:
    words = [word for word in (run.name, run.network) if word] if several else []
    if "method" in differ and _has(run, "method"):
        words.append(arm_word(run.method))
    if "budget" in differ and _has(run, "budget"):
        words.append(str(run.settings.get("budget")))
    words += [f"{key}={run.settings.get(key)}" for key in differ if key not in ("method", "budget") and _has(run, key)]
    return legible(", ".join(words) or run.name, 60)


def arm_word(method: str) -> str:
    """A method as people call it in a comparison."""
    return {"default": "grown", "dense": "full model"}.get(method, legible(method, 40))
