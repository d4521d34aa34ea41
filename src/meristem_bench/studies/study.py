"""Several runs that belong together: arms, budgets and seeds, kept in one folder.

What is finished is not run again and what was stopped goes on, so that the same command can be given again, also with
more arms, budgets or seeds.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.control.budget import Budget
from meristem.control.method_text import named_method
from meristem.control.rivals.autogrow import AutoGrow
from meristem.errors import MeristemError
from meristem.io.atomic import replace_file
from meristem_bench.runs.description import CHANGEABLE_ON_RESUME, with_defaults
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.growth import DENSE, DIRECT
from meristem_bench.runs.result import Result, finished_result
from meristem_bench.runs.run import Run
from meristem_bench.runs.settings import budget_text

GROWN = "grown"  # the arm that is run with the method of the run itself
UNIFORM = "uniform"
_COLUMNS = ("params", "macs", "params_frac", "macs_frac", "spend_frac", "total_spend_frac", "seconds")


@dataclass(frozen=True)
class Case:
    """One run of a study."""

    arm: str
    budget: Budget | None  # None: the arm has none, and ends where it ends
    seed: int

    @property
    def title(self) -> str:
        return f"{self.budget}  {self.arm}" if self.budget else self.arm

    def with_arm(self, arm: str) -> Case:
        return dataclasses.replace(self, arm=arm)


@dataclass(frozen=True)
class Study:
    """A run under several methods, budgets and seeds."""

    source: str  # the recipe's name
    run: Run  # what all arms share
    arms: tuple[str, ...]
    budgets: tuple[Budget, ...]
    seeds: tuple[int, ...]
    out: Path
    by_budget: bool = False  # whether each budget has a folder of its own
    threads: int = 0  # of a run whose settings do not say; one that was begun keeps its own

    def __post_init__(self) -> None:
        for arm in self.arms:
            if arm not in (GROWN, DENSE, DIRECT):
                named_method(arm, besides=(GROWN, DENSE, DIRECT), what="arm")
        if self.by_budget and GROWN in self.arms and self.run.growth.method in (DENSE, DIRECT):
            raise MeristemError(f"nothing grows under the method {self.run.growth.method}; name it by --arms instead")
        if DIRECT in self.arms and GROWN not in self.arms:
            raise MeristemError("the arm direct trains the widths of the arm grown: name both")

    def cases(self) -> Iterator[Case]:
        """All runs, in the order in which they are run: direct design comes after what it is made from."""
        arms = sorted(dict.fromkeys(self.arms), key=lambda arm: (arm == DENSE, arm == DIRECT))
        for seed, budget, arm in itertools.product(self.seeds, self.budgets, arms):
            if _has_budget(arm):
                yield Case(arm, budget, seed)
        for arm, seed in itertools.product(arms, self.seeds):
            if not _has_budget(arm):
                yield Case(arm, None, seed)

    def folder(self, case: Case) -> Folder:
        within = self.out / budget_text(case.budget) if case.budget and self.by_budget else self.out
        arm = case.arm.replace(":", "_")  # a colon is not allowed in file names everywhere
        return Folder(within / f"{arm}-seed{case.seed}")

    def run_of(self, case: Case) -> Run:
        """The run of one case; refuses a folder in which another was begun."""
        run, folder = self.run.replace(**self._changes(case)), self.folder(case)
        content = folder.described() if folder.description.exists() else None
        if content is None:
            return run if run.machine.threads else run.replace(threads=self.threads)
        begun = {**with_defaults(content.get("settings") or {}), "network": content.get("network")}
        if not run.machine.threads:
            run = run.with_settings({"threads": begun.get("threads", self.threads)})
        for name, value in {**run.settings, "network": run.network}.items():
            if name not in CHANGEABLE_ON_RESUME and (was := begun.get(name)) != value:
                raise MeristemError(
                    f"the run in {folder.path} was started with {name}={was}, not {value}: "
                    f"give the same settings to go on with it, or another --out"
                )
        return run

    def _changes(self, case: Case) -> dict[str, Any]:
        """How the run of a case differs from what all cases share."""
        changes: dict[str, Any] = {"seed": case.seed}
        if case.arm != DENSE:  # which needs none said
            changes["budget"] = case.budget or Budget(params="100%")
        if case.arm != GROWN:
            changes["method"] = case.arm
        if case.arm == DIRECT:
            changes["widths"] = str(self.folder(case.with_arm(GROWN)).path.resolve())
        return changes

    def result(self, case: Case) -> Result | None:
        """The result, if there is one. A direct design that is the uniform network is not trained twice."""
        result = finished_result(self.folder(case))
        if result is None and case.arm == DIRECT:
            grown, uniform = (finished_result(self.folder(case.with_arm(arm))) for arm in (GROWN, UNIFORM))
            if grown and uniform and grown["widths"] == uniform["widths"]:
                total = uniform["spend_frac"] + grown["spend_macs"] / uniform["full"]["spend_macs"]
                return {**uniform, "method": DIRECT, "total_spend_frac": total}
        return result

    def can_start(self, case: Case, unfinished: Collection[Case]) -> bool:
        """Whether all is there that a run needs, while others are ``unfinished``.

        A direct design needs the grown network, and waits for the uniform one, which may be the same.
        """
        if case.arm != DIRECT:
            return True
        return self.result(case.with_arm(GROWN)) is not None and case.with_arm(UNIFORM) not in unfinished

    def rows(self) -> list[tuple[str, list[Result]]]:
        """The results of each arm and budget, over the seeds, as far as there are any."""
        results: dict[str, list[Result]] = {}
        for case in sorted(self.cases(), key=self._table_order):
            if result := self.result(case):
                results.setdefault(case.title, []).append(result)
        return list(results.items())

    def _table_order(self, case: Case) -> tuple[bool, bool, int]:
        """The full model first, then budget by budget, then what has none."""
        return case.arm != DENSE, case.budget is None, self.budgets.index(case.budget) if case.budget else 0

    def write_table(self) -> Path:
        """Write all results as ``results.csv``, one line per run."""
        path = self.out / "results.csv"

        def write(beside: Path) -> None:
            with beside.open("w", newline="", encoding="utf-8") as file:
                lines = csv.writer(file)
                lines.writerow(["budget", "arm", "seed", "metric", "validation", "test", *_COLUMNS])
                for case in self.cases():
                    if result := self.result(case):
                        budget, metric = budget_text(case.budget) if case.budget else "", result["headline"]
                        numbers = [result.get(column, "") for column in _COLUMNS]
                        values = [(result.get(split) or {}).get(metric, "") for split in ("validation", "test")]
                        lines.writerow([budget, case.arm, case.seed, metric, *values, *numbers])

        replace_file(path, write)
        return path


def _has_budget(arm: str) -> bool:
    """AutoGrow finds the size of its network by itself; held to that of another it would not be compared as it is."""
    return arm in (GROWN, DIRECT) or (arm != DENSE and not isinstance(named_method(arm).controller, AutoGrow))
