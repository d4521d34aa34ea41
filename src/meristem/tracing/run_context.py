"""The context that rules work with in a run: it turns what a rule says into observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from meristem.space.arrays import IntArray
from meristem.space.remembered_sizes import read_size
from meristem.space.space import Role
from meristem.tracing.labels import Dim
from meristem.tracing.module_calls import ModuleCalls
from meristem.tracing.module_scope import ModuleScope
from meristem.tracing.observations import CostTerm, GridView, Observations
from meristem.tracing.ops.context import Dims, plain
from meristem.tracing.size_attributes import reshapes_by_attributes, sizes_of_view
from meristem.tracing.tensor_dims import TensorDims
from meristem.tracing.unit_labels import MismatchError


class _Context:
    """What every run offers to rules."""

    def __init__(self, observations: Observations, tensor_dims: TensorDims) -> None:
        self.labels = observations.labels
        self.where = ""
        self.counting = False
        self._observations, self._tensor_dims = observations, tensor_dims
        self._run_across: list[int | None] = []

    def dims(self, tensor: Tensor) -> Dims:
        return self._tensor_dims.of(tensor)

    def owned(self, tensor: Tensor, dim: int, like: Dim) -> Dim:
        return self._tensor_dims.along(tensor, dim, like)

    def meet(self, one: Dim, two: Dim) -> Dim:
        return plain(self.labels.unite(one, two, f"it meets a fixed dimension in {self.where}"))

    def pin(self, dim: Dim, reason: str) -> None:
        self.labels.pin(dim, f"{reason} in {self.where}")

    def fixed(self, size: int) -> Dim:
        return Dim(size)

    def positions(self, tensor: Tensor, dims: Sequence[Dim]) -> None:
        self._tensor_dims.set_positions(tensor, dims)

    def runs_across(self, dim: Dim) -> None:
        self._run_across.append(dim.size if dim.ids is None else None)

    def sizes_run_across(self) -> tuple[int | None, ...]:
        """The sizes of what the last operation ran across, None where there are units; they are forgotten."""
        if not self._run_across:
            return ()
        sizes = tuple(self._run_across)
        self._run_across.clear()
        return sizes


class RunContext(_Context):
    """The ``Context`` of a run of the full model (see ``ops/context.py``). ``counting``: cost terms are wanted."""

    def __init__(
        self,
        observations: Observations,
        scope: ModuleScope,
        tensor_dims: TensorDims,
        calls: ModuleCalls,
        *,
        counting: bool,
    ) -> None:
        super().__init__(observations, tensor_dims)
        self.counting = counting
        self._scope, self._calls = scope, calls

    def runs_across(self, dim: Dim) -> None:
        super().runs_across(dim)
        if dim.ids is not None:
            self._observations.run_across.setdefault(self._scope.path, {})[id(dim.ids)] = dim.ids

    def reads(self, dim: Dim) -> None:
        self._add_role(dim, Role.IN)
        if dim.origin is not None:
            self._observations.readers.setdefault(dim.origin, set()).add(self._scope.path)

    def makes(self, dim: Dim) -> None:
        self._add_role(dim, Role.OUT)

    def _add_role(self, dim: Dim, role: Role) -> None:
        if dim.origin is not None:
            self._observations.roles.setdefault(dim.origin, set()).add(role)

    def mixes_units(self, dim: Dim) -> None:
        self.runs_across(dim)
        if dim.ids is not None:
            self._observations.mixed_units.append(dim.ids[dim.ids > 0])

    def heads(self, dim: Dim) -> None:
        if dim.ids is not None:
            self._observations.heads.append(dim.ids[dim.ids > 0])

    def term(self, factor: int, dims: Sequence[Dim]) -> None:
        if self.counting:
            fixed = int(np.prod([dim.size for dim in dims if not dim.labelled]))
            labelled = tuple(dim for dim in dims if dim.labelled)
            self._observations.terms.append(CostTerm(factor * fixed, labelled, self._scope.path))

    def remember(self, names: Sequence[str], dim: Dim, index: int | None = None) -> None:
        if dim.ids is None:
            return
        for name in names:
            value = read_size(self._scope.module, name, index)
            if type(value) is int and value == dim.size:
                self._add_size(name, index, dim.ids)

    def viewed(self, dims: Sequence[Dim]) -> None:
        module, path = self._scope.module, self._scope.path
        if not reshapes_by_attributes(module):
            return
        vectors = [_distinct(dim.ids) for dim in dims if dim.ids is not None]
        inputs = [*self._calls.inputs.get(path, ())]
        if len(vectors) > 1:
            rows, columns = vectors[-2:]
            self._observations.grids.append(GridView(path, type(module), rows, columns, inputs))
        elif vectors:
            one = np.zeros(1, dtype=np.int64)
            self._observations.lone_views.append(GridView(path, type(module), vectors[0], one, inputs))
        for name, index, ids in sizes_of_view(module, vectors):
            self._add_size(name, index, ids)

    def _add_size(self, name: str, index: int | None, ids: IntArray) -> None:
        self._observations.sizes.setdefault((self._scope.path, name, index), []).append(ids)

    def cut(self, part: Dim) -> None:
        self._observations.cuts.setdefault(self.where, []).append(part.vector())

    def divided(self, count: Dim) -> None:
        self._observations.cuts.setdefault(f"parts of {self.where}", []).append(count.vector())


class ReducedContext(_Context):
    """The ``Context`` of a run of a reduced model, where all is known but whether it fits.

    ``expected_cuts`` are the parts that may be cut out by position, by place: what is left of those that the full run
    cut out.
    """

    def __init__(
        self, observations: Observations, tensor_dims: TensorDims, expected_cuts: Mapping[str, Sequence[IntArray]]
    ) -> None:
        super().__init__(observations, tensor_dims)
        self._expected_cuts = expected_cuts

    def reads(self, dim: Dim) -> None:
        """Who reads what is known."""

    def makes(self, dim: Dim) -> None:
        """Who makes what is known."""

    def heads(self, dim: Dim) -> None:
        """What counts heads is known."""

    def term(self, factor: int, dims: Sequence[Dim]) -> None:
        """The cost is known."""

    def remember(self, names: Sequence[str], dim: Dim, index: int | None = None) -> None:
        """The sizes that modules remember are known."""

    def viewed(self, dims: Sequence[Dim]) -> None:
        """What is viewed as a grid is known."""

    def mixes_units(self, dim: Dim) -> None:
        self.runs_across(dim)

    def cut(self, part: Dim) -> None:
        ids = np.maximum(part.vector(), 0)
        if not any(np.array_equal(ids, expected) for expected in self._expected_cuts.get(self.where, [])):
            raise MismatchError("it cuts out other units by position")

    def divided(self, count: Dim) -> None:
        expected = self._expected_cuts.get(f"parts of {self.where}", [])
        if not any(len(each) == count.size for each in expected):
            raise MismatchError("it is divided into another number of parts")


def _distinct(ids: IntArray) -> IntArray:
    """The distinct labels of a dimension, in order of appearance.

    >>> _distinct(np.array([7, 7, 3, 7, 5])).tolist()
    [7, 3, 5]
    """
    _, first = np.unique(ids, return_index=True)
    return ids[np.sort(first)]
