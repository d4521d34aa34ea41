"""The labelled dimensions of all tensors of one run."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from meristem.space.space import Role
from meristem.tracing.labels import Dim
from meristem.tracing.model_copy import named_tensors, tensor_at
from meristem.tracing.module_scope import ModuleScope
from meristem.tracing.observations import Observations
from meristem.tracing.ops.context import Dims
from meristem.tracing.shared_memory import SharedMemory, after_write


class TensorDims:
    """Dimensions of tensors in flight and of the model's own tensors, which get fresh labels when they are first met.

    Tensors in flight live as long as this object, so that ids tell them apart. A tensor of the model is recognised by
    its id or, when a module reads it through an alias of the same shape, by its storage.
    """

    def __init__(self, model: nn.Module, observations: Observations, scope: ModuleScope) -> None:
        self._model, self._observations, self._scope = model, observations, scope
        self._in_flight: dict[int, tuple[Tensor, Dims]] = {}
        self._names: dict[int, str] = {}
        self._names_by_storage: dict[int, str] = {}
        self._positions_along: dict[int, list[Dim]] = {}
        self._shared_memory = SharedMemory()
        for name, tensor in named_tensors(model):
            self._names.setdefault(id(tensor), name)
            self._names_by_storage.setdefault(tensor.untyped_storage()._cdata, name)

    def __contains__(self, tensor: Tensor) -> bool:
        """Whether the dimensions of a tensor in flight have been set."""
        return id(tensor) in self._in_flight

    def set(self, tensor: Tensor, dims: Dims) -> None:
        self._in_flight[id(tensor)] = (tensor, dims)

    def set_result(self, tensor: Tensor, dims: Dims) -> None:
        """Set the dimensions of an operation's result; a tensor of the model, written to in place, keeps its own."""
        if id(tensor) not in self._names:
            self._in_flight[id(tensor)] = (tensor, dims)
            self._shared_memory.add(tensor, dims)

    def set_written(self, tensor: Tensor, dims: Dims, where: str) -> None:
        """Set the dimensions of a tensor that was written to in place, and of those that share its memory."""
        for other in self._shared_memory.others(tensor):
            now = after_write(other, self.of(other), tensor, dims, self._observations.labels, where)
            self._in_flight[id(other)] = (other, now)
        self.set_result(tensor, dims)

    def of(self, tensor: Tensor) -> Dims:
        """The dimensions of a tensor; fixed ones if nothing is known about it."""
        in_flight = self._in_flight.get(id(tensor))
        if in_flight is not None and len(in_flight[1]) == tensor.dim():
            return in_flight[1]
        name = self._names.get(id(tensor))
        if name is None:
            name = self._names_by_storage.get(tensor.untyped_storage()._cdata)
            if name is None or tensor_at(self._model, name).shape != tensor.shape:
                return [Dim(size) for size in tensor.shape]
        self._observations.users.setdefault(name, set()).add(self._scope.path)
        return [self._of_model(name, dim, tensor) for dim in range(tensor.dim())]

    def of_all(self, values: Sequence[object]) -> Dims:
        """The dimensions of all tensors among these values, one after the other."""
        return [dim for value in values if isinstance(value, Tensor) for dim in self.of(value)]

    def along(self, tensor: Tensor, dim: int, like: Dim) -> Dim:
        """A dimension of the model's tensors that goes along with ``like``: first met here, it has the same labels."""
        name = self._names.get(id(tensor))
        if name is None or tensor in self:
            return self.of(tensor)[dim]
        key, observations = (name, dim), self._observations
        observations.users.setdefault(name, set()).add(self._scope.path)
        if key not in observations.owned and like.size == tensor.shape[dim]:
            observations.owned[key] = Dim(like.size, like.ids, constant=like.size == 1, origin=key)
        observations.roles.setdefault(key, set()).add(Role.ALONG)
        return self._of_model(name, dim, tensor)

    def _of_model(self, name: str, dim: int, tensor: Tensor) -> Dim:
        """A dimension of a tensor of the model. Whole numbers and flags are positions or masks: they own no units."""
        key, size, owned = (name, dim), tensor.shape[dim], self._observations.owned
        if key not in owned:
            ids = self._observations.labels.fresh(size) if size > 1 and holds_numbers(tensor) else None
            owned[key] = Dim(size, ids, constant=size == 1, origin=key)
        return owned[key]

    def set_positions(self, tensor: Tensor, dims: Sequence[Dim]) -> None:
        """Say that the numbers in ``tensor`` are positions along ``dims``: where the largest element was, say."""
        self._positions_along[id(tensor)] = [dim for dim in dims if dim.labelled]

    def pin_positions(self, values: Sequence[object], where: str) -> None:
        """Pin the dimensions that any of these values count positions of, now used: live units alone are counted."""
        if not self._positions_along:
            return
        for dim in [dim for value in values for dim in self._positions_along.get(id(value), [])]:
            self._observations.labels.pin(dim, f"positions along it are used in {where}")


def holds_numbers(tensor: Tensor) -> bool:
    """Whether it may hold what units compute; whole numbers and flags are positions or masks."""
    return tensor.is_floating_point() or tensor.is_complex()
