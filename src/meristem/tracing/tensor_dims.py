"""The labelled dimensions of all tensors of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from meristem.space.space import Role
from meristem.tracing.behaviour import Token
from meristem.tracing.labels import Dim
from meristem.tracing.model_copy import named_tensors, tensor_at
from meristem.tracing.module_scope import ModuleScope
from meristem.tracing.observations import Observations
from meristem.tracing.operation import flat
from meristem.tracing.ops.context import Dims
from meristem.tracing.restriction import Restriction
from meristem.tracing.shared_memory import SharedMemory, after_write


class TensorDims:
    """Dimensions of tensors in flight and of the model's own tensors, which get fresh labels when they are first met.

    Tensors in flight live as long as this object, so that ids tell them apart. A tensor of the model is recognised by
    its id or, when a module reads it through an alias of the same shape, by its storage.
    """

    def __init__(self, model: nn.Module, observations: Observations, scope: ModuleScope) -> None:
        self.restriction: Restriction | None = None  # of what there are tokens
        self._model, self._observations, self._scope = model, observations, scope
        self._in_flight: dict[int, tuple[Tensor, Dims]] = {}
        self._tokens: dict[int, tuple[Tensor, Token]] = {}  # of tensors in flight, in a reduced model
        self._names: dict[int, str] = {}
        self._names_by_storage: dict[int, str] = {}
        self._positions_along: dict[int, list[Dim]] = {}
        self._shared_memory = SharedMemory()
        self._shapes: dict[str, torch.Size] = {}  # of the model's tensors, when the run began
        for name, tensor in named_tensors(model):
            self._names.setdefault(id(tensor), name)
            self._shapes[name] = tensor.shape
            self._names_by_storage.setdefault(tensor.untyped_storage()._cdata, name)

    def __contains__(self, tensor: Tensor) -> bool:
        """Whether the dimensions of a tensor in flight have been set."""
        return id(tensor) in self._in_flight or id(tensor) in self._tokens

    def set(self, tensor: Tensor, dims: Dims) -> None:
        self._in_flight[id(tensor)] = (tensor, dims)
        self._tokens.pop(id(tensor), None)

    def forget(self) -> None:
        """Let go of all tensors in flight."""
        self._in_flight.clear()
        self._tokens.clear()

    def set_input(self, tensor: Tensor, dims: Dims) -> None:
        """Set the dimensions of an input of the model, which are the same in every run."""
        self.set(tensor, dims)
        if self.restriction is not None and self._is_reduced:
            token = self.restriction.behaviour.token(dims)
            if token is not None:
                self._tokens[id(tensor)] = (tensor, token)

    def set_result(self, tensor: Tensor, dims: Dims) -> None:
        """Set the dimensions of an operation's result; a tensor of the model, written to in place, keeps its own."""
        if id(tensor) not in self._names:
            self.set(tensor, dims)
            self._shared_memory.add(tensor, dims)

    def set_token(self, tensor: Tensor, token: Token) -> None:
        """Set the dimensions of a result by their token."""
        if id(tensor) in self._names:
            return
        if self._is_reduced:
            self._in_flight.pop(id(tensor), None)
            self._tokens[id(tensor)] = (tensor, token)
        else:
            self._in_flight[id(tensor)] = (tensor, [*token])
        self._shared_memory.add(tensor, token)

    def recognise(self, tensor: Tensor, token: Token) -> None:
        """Say that the dimensions of a tensor in flight, in a reduced model, are what is left of these."""
        if id(tensor) in self._in_flight and self._is_reduced:
            self._tokens[id(tensor)] = (tensor, token)

    def token(self, tensor: Tensor) -> Token | None:
        """The token of a tensor, as far as is known."""
        restriction = self.restriction
        assert restriction is not None
        cached = self._tokens.get(id(tensor))
        if cached is not None:
            return cached[1] if len(cached[1]) == tensor.dim() else None
        in_flight = self._in_flight.get(id(tensor))
        if in_flight is not None:
            fits = not self._is_reduced and len(in_flight[1]) == tensor.dim()
            return restriction.behaviour.token(in_flight[1]) if fits else None
        name = self._names.get(id(tensor))
        if name is None or not self.has_its_shape(name, tensor):
            return None
        return restriction.of_model(name, tensor.dim())

    def left(self, token: Token) -> Dims:
        """The dimensions of which there is a token."""
        assert self.restriction is not None
        return self.restriction.dims(token)

    def name_of(self, tensor: Tensor) -> str | None:
        """The name of a tensor of the model."""
        return self._names.get(id(tensor))

    def has_its_shape(self, name: str, tensor: Tensor) -> bool:
        """Whether a tensor of the model has the shape that it had when the run began: what is left of its own."""
        return self._shapes[name] == tensor.shape

    @property
    def has_shared_memory(self) -> bool:
        """Whether there are constants that may share memory with what is written to."""
        return self._shared_memory.is_used

    @property
    def _is_reduced(self) -> bool:
        return self.restriction is not None and self.restriction.reduces

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
        cached = self._tokens.get(id(tensor))
        if cached is not None and len(cached[1]) == tensor.dim():
            self._in_flight[id(tensor)] = (tensor, dims := self.left(cached[1]))
            return dims
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

    def pin_positions(self, values: Iterable[object], where: str) -> None:
        """Pin the dimensions that any of these values count positions of, now used: live units alone are counted."""
        if not self._positions_along:
            return
        for dim in [dim for value in flat([*values]) for dim in self._positions_along.get(id(value), [])]:
            self._observations.labels.pin(dim, f"positions along it are used in {where}")


def holds_numbers(tensor: Tensor) -> bool:
    """Whether it may hold what units compute; whole numbers and flags are positions or masks."""
    return tensor.is_floating_point() or tensor.is_complex()
