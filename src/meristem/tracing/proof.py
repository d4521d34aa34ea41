"""The proof: before a group is called free, reduced copies of the model are run. What fails is pinned, with the reason.

Where the failure may be due to code that has one width for heads and for what it reads, heads are tied to that width
first (``view_ties.py``); where a group fails alone but not together with others of as many units, these are tied
(``width_ties.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from meristem.space.space import SizedNumber
from meristem.tracing.full_run import FullRun
from meristem.tracing.grouping import Grouping, group_units, remembered_sizes
from meristem.tracing.hints import Hints
from meristem.tracing.layer_rules import LayerRules
from meristem.tracing.observations import NUMBER_OF_A_SIZE, GridView
from meristem.tracing.reduced_run import Failure, Masks, ReducedRuns, Sizes
from meristem.tracing.resolve import resolve
from meristem.tracing.trials import guilty, trial_masks
from meristem.tracing.view_ties import ViewTies
from meristem.tracing.width_ties import tie_widths

_ROUNDS = 400  # a proof that needs more corrections than this is given up: everything is pinned


@dataclass(frozen=True)
class Proven:
    """Groups that the model runs with at any width, what remembered sizes and numbers follow, and notes."""

    grouping: Grouping
    sizes: Sizes
    notes: tuple[str, ...] = ()
    numbers: tuple[SizedNumber, ...] = ()


class Proof:
    """Groups units, tries them, and pins what fails, until nothing fails."""

    def __init__(self, model: nn.Module, full: FullRun, rules: LayerRules, ties: ViewTies, runs: ReducedRuns) -> None:
        self._model, self._rules, self._ties, self._runs = model, rules, ties, runs
        self._observations = full.observations
        self._width_ties = ViewTies(full.observations, full.observations.lone_views)
        self._hints = Hints(full.observations.grids)

    def proven(self) -> Proven:
        for _ in range(_ROUNDS):
            grouping = self._grouping()
            sizes, notes = remembered_sizes(grouping, self._rules.sizes())
            failed = self._first_failure(grouping, sizes)
            if failed is not None:
                self._correct(grouping, sizes, *failed)
            elif self._runs.sized.settled():
                marked = self._grouping() if self._runs.sized.marked() else grouping
                return Proven(marked, sizes, (*notes, *self._hints.notes()), self._runs.sized.described(marked))
        for dim in list(self._observations.owned.values()):
            self._observations.labels.pin(dim, "the proof that it may change did not come to an end")
        return Proven(self._grouping(), {})

    def _grouping(self) -> Grouping:
        resolution = resolve(self._observations.labels)
        return group_units(self._observations, resolution, self._model, self._rules.floors())

    def _first_failure(self, grouping: Grouping, sizes: Sizes) -> tuple[Masks, Failure] | None:
        for masks in trial_masks(grouping) if grouping.groups else ():
            failure = self._runs.failure(grouping, sizes, masks)
            if failure is not None:
                return masks, failure
        return None

    def _correct(self, grouping: Grouping, sizes: Sizes, masks: Masks, failure: Failure) -> None:
        """Pin what the failure is due to, or tie heads to the width they are read from when that may be the cause."""
        suspects = grouping.groups_in(failure.units)
        every = [group.name for group in grouping.groups]
        fails = self._fails_alike(grouping, sizes, masks, failure)
        blamed = guilty(sorted(suspects), fails) or guilty(every, fails) or suspects or set(every)
        layers = self._ties.layers_of(grouping, blamed)
        others = self._width_ties.layers_of(grouping, blamed) & self._width_ties.layers_around(failure.where)
        if self._ties.try_to_tie(layers):
            self._hints.tied(layers & self._ties.tied)
            return
        if self._width_ties.try_to_tie(others):
            return
        if self._width_ties.untie(others):
            return  # without them fewer are to blame
        alone = self._failure_of_one(grouping, sizes, masks, failure, blamed) if len(blamed) > 1 else None
        if alone is not None:
            self._correct(grouping, sizes, *alone)
            return
        if len(blamed) == 1 and self._tie_widths(grouping, sizes, masks, failure, *blamed):
            return
        self._ties.untie(layers)
        self._hints.untied(layers)
        if failure.message == NUMBER_OF_A_SIZE:
            grids = self._observations.grids
            self._hints.sized({grid.layer for grid in grids if grouping.groups_in(grid.columns) & blamed})
        reason = f"{failure.where} does not work with another size of it ({failure.message})"
        self._observations.labels.pin_ids(np.flatnonzero(grouping.labels_of(blamed)), reason)
        self._pin_same_view_of_other_layers(grouping, blamed, reason)

    def _fails_alike(
        self, grouping: Grouping, sizes: Sizes, masks: Masks, failure: Failure
    ) -> Callable[[Sequence[str]], bool]:
        """Whether the trial still fails at the same place when only the named groups are reduced."""

        def fails(names: Sequence[str]) -> bool:
            only = {name: mask if name in names else np.ones_like(mask) for name, mask in masks.items()}
            again = self._runs.failure(grouping, sizes, only, [failure.training])
            return again is not None and again.where == failure.where

        return fails

    def _tie_widths(self, grouping: Grouping, sizes: Sizes, masks: Masks, failure: Failure, blamed: str) -> bool:
        """Tie a group that fails alone to others of as many units, if the model runs when all of them are reduced."""

        def fails(names: Sequence[str]) -> bool:
            alike = {name: masks[blamed] if name in names else np.ones_like(mask) for name, mask in masks.items()}
            return self._runs.failure(grouping, sizes, alike, [failure.training]) is not None

        return tie_widths(grouping, blamed, fails)

    def _failure_of_one(
        self, grouping: Grouping, sizes: Sizes, masks: Masks, failure: Failure, blamed: set[str]
    ) -> tuple[Masks, Failure] | None:
        """A failure, wherever it is, of one of the blamed groups on its own: several may only seem to fail together."""
        if sum(not mask.all() for mask in masks.values()) < 2:
            return None
        for name in sorted(blamed):
            only = {other: mask if other == name else np.ones_like(mask) for other, mask in masks.items()}
            again = self._runs.failure(grouping, sizes, only, [failure.training])
            if again is not None:
                return only, again
        return None

    def _pin_same_view_of_other_layers(self, grouping: Grouping, blamed: set[str], reason: str) -> None:
        """A head size that cannot change in one layer cannot at the same reshape of others of its class."""
        grids = list(_numbered(self._observations.grids))
        alike = {(grid.layer, number) for grid, number in grids if grouping.groups_in(grid.columns) == blamed}
        for grid, number in grids:
            if (grid.layer, number) in alike:
                self._observations.labels.pin_ids(grid.columns, reason)


def _numbered(grids: Sequence[GridView]) -> Iterator[tuple[GridView, int]]:
    """Grids with their number inside their own module."""
    last: dict[str, int] = {}
    for grid in grids:
        last[grid.path] = last.get(grid.path, -1) + 1
        yield grid, last[grid.path]
