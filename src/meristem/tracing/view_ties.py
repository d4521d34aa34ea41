"""What a layer views tied to the width that it reads.

Attention code may demand that heads times head size equals the width of the layer. There one unit is a head together
with its share of that width, in every layer of the class. Other code views what it has made with the width of what it
was given; there the two are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import nn

from meristem.space.paths import ancestors
from meristem.tracing.grouping import Grouping
from meristem.tracing.labels import dim_of
from meristem.tracing.observations import GridView, Observations

Layer = type[nn.Module]


class ViewTies:
    """Ties of ``views`` that can be undone, by class of layer; a class whose ties were undone is never tied again."""

    def __init__(self, observations: Observations, views: Sequence[GridView]) -> None:
        self._observations, self._views = observations, views
        self._unions: dict[Layer, list[int]] = {}  # where in the labels' unions the ties of each class are
        self._given_up: set[Layer] = set()

    def tie_layers(self, layers: tuple[Layer, ...]) -> None:
        """Tie layers whose code is known to demand it."""
        self._tie([view for view in self._views if issubclass(view.layer, layers)])

    def try_to_tie(self, layers: Iterable[Layer]) -> bool:
        """Tie those of the classes that were never tied; whether anything could be tied."""
        untried = set(layers) - set(self._unions) - self._given_up
        return self._tie([view for view in self._views if view.layer in untried])

    def layers_of(self, grouping: Grouping, groups: set[str]) -> set[Layer]:
        """The classes of layers that view any units of these groups, as rows."""
        return {view.layer for view in self._views if grouping.groups_in(view.rows) & groups}

    def layers_around(self, where: str) -> set[Layer]:
        """The classes of layers that lie where an operation ran: ``where`` is "view in layers.0", or a path."""
        path = where.rpartition(" in ")[2]
        return {view.layer for view in self._views if view.path in (path, *ancestors(path))}

    def _tie(self, views: Sequence[GridView]) -> bool:
        """Unite rows x columns of a layer's own view with the width it reads; whether anything was not one before."""
        labels, first = self._observations.labels, len(self._observations.labels.unions)
        for view in views:
            width = len(view.rows) * len(view.columns)
            whole = next((dim for dim in view.inputs if dim.labelled and dim.size == width), None)
            if whole is None or view.layer in self._given_up:
                continue
            before = len(labels.unions)
            cells = labels.merge([dim_of(view.rows), dim_of(view.columns)])
            labels.unite(cells, whole, f"{view.path} has one width for both")
            self._unions.setdefault(view.layer, []).extend(range(before, len(labels.unions)))
        return len(labels.unions) > first

    @property
    def tied(self) -> set[Layer]:
        """The classes that have ties."""
        return set(self._unions)

    def untie(self, layers: Iterable[Layer]) -> bool:
        """Undo the ties of those of the classes that have any; whether there were some."""
        nothing, undone = np.zeros(0, dtype=np.int64), False
        for layer in set(layers) & set(self._unions):
            for at in self._unions.pop(layer):
                self._observations.labels.unions[at] = (nothing, nothing)
                undone = True
            self._given_up.add(layer)
        return undone
