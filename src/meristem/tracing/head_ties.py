"""Heads tied to the width they are read from.

Attention code may demand that heads times head size equals the width of the layer. There one unit is a head together
with its share of that width, in every layer of the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import nn

from meristem.tracing.labels import dim_of
from meristem.tracing.observations import GridView, Observations

Layer = type[nn.Module]


class HeadTies:
    """Ties that can be undone, by class of layer; a class whose ties were undone is never tied again."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._unions: dict[Layer, list[int]] = {}  # where in the labels' unions the ties of each class are
        self._given_up: set[Layer] = set()

    def tie_layers(self, layers: tuple[Layer, ...]) -> None:
        """Tie layers whose code is known to demand it."""
        self._tie([grid for grid in self._observations.grids if issubclass(grid.layer, layers)])

    def try_to_tie(self, layers: Iterable[Layer]) -> bool:
        """Tie those of the classes that were never tied; whether anything could be tied."""
        untried = set(layers) - set(self._unions) - self._given_up
        grids = [grid for grid in self._observations.grids if grid.layer in untried]
        return bool(grids) and self._tie(grids)

    def _tie(self, grids: Sequence[GridView]) -> bool:
        """Unite rows x columns of a layer's own view with the width it reads; whether anything could be tied."""
        labels, tied = self._observations.labels, False
        for grid in grids:
            width = len(grid.rows) * len(grid.columns)
            whole = next((dim for dim in grid.inputs if dim.labelled and dim.size == width), None)
            if whole is None or grid.layer in self._given_up or not self._is_of_a_width(grid):
                continue
            before = len(labels.unions)
            cells = labels.merge([dim_of(grid.rows), dim_of(grid.columns)])
            labels.unite(cells, whole, f"{grid.path} has one width for both")
            self._unions.setdefault(grid.layer, []).extend(range(before, len(labels.unions)))
            tied = True
        return tied

    def _is_of_a_width(self, grid: GridView) -> bool:
        """Whether rows and columns came from one dimension: heads and queries of attention weights did not."""
        return any(
            np.isin(grid.rows, factoring.rows).all() and np.isin(grid.columns, factoring.columns).all()
            for factoring in self._observations.labels.factorings
        )

    @property
    def tied(self) -> set[Layer]:
        """The classes that have ties."""
        return set(self._unions)

    def untie(self, layers: Iterable[Layer]) -> None:
        """Undo the ties of those of the classes that have any."""
        nothing = np.zeros(0, dtype=np.int64)
        for layer in set(layers) & set(self._unions):
            for at in self._unions.pop(layer):
                self._observations.labels.unions[at] = (nothing, nothing)
            self._given_up.add(layer)
