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
from meristem.control.method import Method
from meristem.errors import MeristemError
from meristem.io.atomic import replace_file
from meristem.methods import parse_method
from meristem_bench.runs.description import may_change, with_defaults
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.latency import latency_ms, read_latency
from meristem_bench.runs.result import Result, finished_result, savings, total_savings
from meristem_bench.runs.run import Run
from meristem_bench.show.formatting import blocks_text
from meristem_bench.studies.arm import GROWN, UNIFORM, Arm

_NUMBERS = ("params", "macs", "params_frac", "macs_frac", "spend_frac", "total_spend_frac", "epochs", "seconds")
_MORE = ("savings", "total_savings", "latency_ms_1", "latency_ms_batch", "latency_batch", "other_work", "blocks")
_HEAD = ("budget", "arm", "seed", "metric", "validation", "test", *_NUMBERS, *_MORE)


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
        methods = {arm: self.method(arm) for arm in self.arms}
        own = self.run.growth.policies
        if self.by_budget and GROWN in self.arms and (own.ignores_budget or own.needs_widths):
            raise MeristemError(f"nothing grows under the method {self.run.growth.method}; name it by --arms instead")
        for arm, method in methods.items():
            parsed = Arm.parse(arm)
            if parsed.cost_of is not None and method.grows:
                raise MeristemError(
                    f"the arm {arm} grows, and what it costs shows only at its end: give cost={parsed.cost_of} to an "
                    f"arm of fixed structure (uniform, direct or dense)"
                )
            if parsed.widths_of != GROWN and not method.needs_widths:
                raise MeristemError(
                    f"the arm {arm} has widths of its own: of={parsed.widths_of} goes with direct alone"
                )
            if method.needs_widths and parsed.widths_of not in self.arms:
                raise MeristemError(f"the arm {arm} trains the widths of the arm {parsed.widths_of}: name both")
            if parsed.cost_of is not None and parsed.cost_of not in self.arms:
                raise MeristemError(f"the arm {arm} costs what the arm {parsed.cost_of} costs: name both")

    def method(self, arm: str) -> Method:
        """The method of an arm, which is its name but for the arm of the run's own method."""
        name = Arm.parse(arm).method
        return self.run.growth.policies if name == GROWN else parse_method(name, what="arm", more_names=(GROWN,))

    def _has_budget(self, arm: str) -> bool:
        """Whether an arm is run under each budget; one that finds its size by itself is run once."""
        return arm == GROWN or self.method(arm).has_budget or Arm.parse(arm).cost_of is not None

    def cases(self) -> Iterator[Case]:
        """All runs, in the order in which they are run: those that need another one come after it."""
        arms = sorted(dict.fromkeys(self.arms), key=self._run_order)
        for seed, budget, arm in itertools.product(self.seeds, self.budgets, arms):
            if self._has_budget(arm):
                yield Case(arm, budget, seed)
        for arm, seed in itertools.product(arms, self.seeds):
            if not self._has_budget(arm):
                yield Case(arm, None, seed)

    def _run_order(self, arm: str) -> tuple[bool, bool, bool]:
        """The full model last, direct design before it, and before that what costs as much as another arm."""
        if arm == GROWN:
            return False, False, False
        method, at_cost = self.method(arm), Arm.parse(arm).cost_of is not None
        return method.ignores_budget and not at_cost, method.needs_widths, at_cost

    def folder(self, case: Case) -> Folder:
        within = self.out / case.budget.text if case.budget and self.by_budget else self.out
        arm = case.arm.replace(":", "_")  # a colon is not allowed in file names everywhere
        return Folder(within / f"{arm}-seed{case.seed}")

    def run_of(self, case: Case) -> Run:
        """The run of one case; refuses a folder in which another was begun."""
        run, folder = self.run.replace(**self._changes(case)), self.folder(case)
        content = folder.read_description() if folder.description.exists() else None
        if content is None:
            return run if run.machine.threads else run.replace(threads=self.threads)
        started_with = {**with_defaults(content.get("settings") or {}), "network": content.get("network")}
        if not run.machine.threads:
            run = run.with_settings({"threads": started_with.get("threads", self.threads)})
        for name, value in {**run.settings, "network": run.network}.items():
            if not may_change(name, was := started_with.get(name), value):
                raise MeristemError(
                    f"the run in {folder.path} was started with {name}={was}, not {value}: "
                    f"give the same settings to go on with it, or another --out"
                )
        return run

    def _changes(self, case: Case) -> dict[str, Any]:
        """How the run of a case differs from what all cases share."""
        changes: dict[str, Any] = {"seed": case.seed}
        arm = Arm.parse(case.arm)
        if case.arm == GROWN or arm.cost_of is not None or not self.method(case.arm).ignores_budget:
            changes["budget"] = case.budget or Budget(params="100%")
        if case.arm != GROWN:
            changes["method"] = arm.method
        if self._retrains(case):
            changes["widths"] = self._path(self._other(case, arm.widths_of))
        if arm.cost_of is not None:
            changes["cost_of"] = self._path(self._other(case, arm.cost_of))
        return changes

    def _path(self, case: Case) -> str:
        return str(self.folder(case).path.resolve())

    def _other(self, case: Case, arm: str) -> Case:
        """The run of another arm that a case needs; one that finds its size by itself is the same for every budget."""
        other = case.with_arm(arm)
        return other if self._has_budget(arm) else dataclasses.replace(other, budget=None)

    def _source(self, case: Case) -> Case:
        """The run whose widths a direct design trains."""
        return self._other(case, Arm.parse(case.arm).widths_of)

    def _retrains(self, case: Case) -> bool:
        """Whether a case trains the network of another arm from scratch."""
        return case.arm != GROWN and self.method(case.arm).needs_widths

    def result(self, case: Case) -> Result | None:
        """The result, if there is one. A direct design that is the uniform network is not trained twice."""
        result = _finished(self.folder(case))
        if result is None and self._retrains(case):
            source, uniform = (_finished(self.folder(each)) for each in (self._source(case), _uniform(case)))
            if source and uniform and source["widths"] == uniform["widths"]:
                total = uniform["spend_frac"] + source["spend_macs"] / uniform["full"]["spend_macs"]
                return {**uniform, "method": Arm.parse(case.arm).method, "total_spend_frac": total}
        return result

    def can_start(self, case: Case, unfinished: Collection[Case]) -> bool:
        """Whether all is there that a run needs, while others are ``unfinished``.

        A direct design needs the network of another arm, and waits for the uniform one, which may be the same. What
        shall cost as much as another arm needs to know what that has cost.
        """
        if self._retrains(case) and _uniform(case) in unfinished:
            return False
        cost_of = Arm.parse(case.arm).cost_of
        needed = [self._source(case)] if self._retrains(case) else []
        needed += [] if cost_of is None else [self._other(case, cost_of)]
        return all(self.result(each) is not None for each in needed)

    def rows(self) -> list[tuple[str, list[Result]]]:
        """The results of each arm and budget, over the seeds, as far as there are any."""
        results: dict[str, list[Result]] = {}
        for case in sorted(self.cases(), key=self._table_order):
            if result := self.result(case):
                results.setdefault(case.title, []).append(result)
        return list(results.items())

    def _table_order(self, case: Case) -> tuple[bool, bool, int]:
        """The full model first, then budget by budget, then what has none."""
        full = case.arm != GROWN and case.budget is None and self.method(case.arm).ignores_budget
        return not full, case.budget is None, self.budgets.index(case.budget) if case.budget else 0

    def write_table(self) -> Path:
        """Write all results as ``results.csv``, one line per run."""
        path = self.out / "results.csv"

        def write(beside: Path) -> None:
            with beside.open("w", newline="", encoding="utf-8") as file:
                lines = csv.writer(file)
                lines.writerow(_HEAD)
                for case in self.cases():
                    if result := self.result(case):
                        budget, metric = case.budget.text if case.budget else "", result["headline"]
                        numbers = [result.get(column, "") for column in _NUMBERS]
                        values = [(result.get(split) or {}).get(metric, "") for split in ("validation", "test")]
                        lines.writerow([budget, case.arm, case.seed, metric, *values, *numbers, *_more(result)])

        replace_file(path, write)
        return path


def _finished(folder: Folder) -> Result | None:
    """The result of a finished run, with its latency if that was measured."""
    result = finished_result(folder)
    return None if result is None else {**result, "latency": read_latency(folder)}


def _more(result: Result) -> list[Any]:
    """The last columns of the file."""
    ms, latency = latency_ms(result), result.get("latency") or {}
    batch = next((size for size in ms if size != "1"), "1")
    measured = [ms.get("1", ""), ms.get(batch, ""), batch if ms else "", latency.get("other_work", "")]
    return [savings(result), total_savings(result), *measured, blocks_text(result.get("blocks") or {})]


def _uniform(case: Case) -> Case:
    """The uniform network that is trained as a direct design is, for as long."""
    return case.with_arm(str(Arm(UNIFORM, Arm.parse(case.arm).cost_of)))
