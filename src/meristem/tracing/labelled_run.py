"""Run a model once, with labels: every operation is executed for its shapes and applied to the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from meristem.space.arrays import IntArray
from meristem.space.rules import counts_heads, reshapes_by_attributes, sizes_a_head, sizes_a_width
from meristem.space.space import Role
from meristem.space.state_tensors import state_tensors
from meristem.tracing.depth.streams import Streams
from meristem.tracing.labels import Dim
from meristem.tracing.model_call import Call
from meristem.tracing.model_copy import named_tensors, tensor_at, tensors_in
from meristem.tracing.observations import Grid, OpError, Passage, Record, Step
from meristem.tracing.operation import Written, by_name, factors, flat, is_pointwise
from meristem.tracing.ops.context import Dims, OpRuleFunction
from meristem.tracing.ops.elementwise import nothing, pointwise, unknown
from meristem.tracing.ops.shapes import SHORTCUTS
from meristem.tracing.ops.table import TABLE


class Run(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """One labelled run. It is the context (see ``ops/context.py``) that rules work with.

    A ``forgiving`` run takes an operation that its rule cannot handle for unknown.
    """

    forgiving = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch's guard against being compiled would import the whole compiler, a second, at the first trace."""
        return False

    def __init__(
        self,
        model: nn.Module,
        record: Record,
        like: Mapping[str, str],
        *,
        meta: bool,
        counting: bool,
        listener: Callable[[Step], None] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model, self.record, self.like, self.meta, self.counting = model, record, like, meta, counting
        self.labels = record.labels
        self.listener = listener
        self.where = ""
        self.calls = 0
        self.state: Any = None  # that the model returned last
        self.scalars: dict[str, set[tuple[Any, ...]]] = {}
        self._modules = dict(model.named_modules())
        self._stack: list[str] = [""]
        self._inputs: dict[str, list[Dim]] = {}
        self._versions: dict[str, list[int]] = {}  # of the first input of each module, when it was entered
        self._entered = ""
        self._last: list[Any] = []
        self._names: dict[int, str] = {}
        self._storages: dict[int, str] = {}
        self._known: dict[int, tuple[Tensor, Dims]] = {}
        self._foreign: dict[int, tuple[Tensor, Tensor]] = {}
        self._streams = Streams(record)
        self._positions: dict[int, list[Dim]] = {}  # where along a dimension the most or least was found
        for name, tensor in named_tensors(model):
            self._names.setdefault(id(tensor), name)
            self._storages.setdefault(tensor.untyped_storage()._cdata, name)

    # --- the run ---

    def execute(self, call: Call) -> list[Tensor]:
        """Run the model and pin what it returns, but for the state that is carried on; the returned tensors."""
        for tensor in call.tensors():  # nothing about an input may change
            self._known[id(tensor)] = (tensor, [Dim(size) for size in tensor.shape])
        self._give_state(call)
        self.calls += 1
        with torch.no_grad(), _fast_attention_off(), self._following_modules(), Written(self._written), self:
            outputs = call.on(self.model)
        rest, self.state = call.split(outputs)
        self.where = "the model's output"
        self._look_up(tensors_in(outputs))
        for tensor in rest:
            for dim in self.dims(tensor):
                self.labels.pin(dim, "it is a model output")
        self._carry(state_tensors(self.state))
        return tensors_in(outputs)

    def _give_state(self, call: Call) -> None:
        """The state of the example may have any units that the one which the model returns has."""
        for path, tensor in state_tensors(call.state):
            if id(tensor) in self._known:  # the model returned it
                continue
            if path not in self.record.states:
                numbers = tensor.is_floating_point() or tensor.is_complex()
                self.record.states[path] = [
                    Dim(size, self.labels.fresh(size) if numbers and size > 1 else None) for size in tensor.shape
                ]
            dims = zip(self.record.states[path], tensor.shape, strict=True)
            self._known[id(tensor)] = (tensor, [dim if dim.labelled else Dim(size) for dim, size in dims])

    def _carry(self, carried: Sequence[tuple[str, Tensor]]) -> None:
        """What the model returns as its state is what it is given at the next call."""
        self.where = "the state it returns"
        for path, tensor in carried:
            now = self.dims(tensor)
            before = self.record.states.setdefault(path, [Dim(dim.size, dim.ids, dim.constant) for dim in now])
            try:
                for one, two in zip(before, now, strict=True):
                    if one.size == two.size:
                        self.labels.unite(one, two, "the state that is carried on is fixed there")
                        continue
                    for dim in (one, two):
                        self.labels.pin(dim, f"it changes from call to call in {path}")
            except ValueError as error:
                raise OpError(str(error), self.where, now) from error

    @contextmanager
    def _following_modules(self) -> Iterator[None]:
        handles = []
        for path, module in self._modules.items():
            handles.append(module.register_forward_pre_hook(self._enter(path), with_kwargs=True))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
            if path in self.record.watched:
                handles.append(module.register_forward_hook(self._pass(path), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, path: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._stack.append(path)
            self._entered = path
            tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            self._versions[path] = [_version(tensor) for tensor in tensors[:1]]
            self._inputs[path] = [dim for tensor in tensors for dim in self.dims(tensor)]

        return enter

    def _leave(self, *_: Any) -> None:
        self._stack.pop()

    def _pass(self, path: str) -> Callable[..., None]:
        def passed(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            given, made = (value[0] if isinstance(value, tuple) and value else value for value in (args, output))
            found = None
            if isinstance(given, Tensor) and isinstance(made, Tensor) and given.dtype == made.dtype:
                alone = len(args) == 1 and not kwargs and made is output
                spoiled = self._versions[path] != [_version(given)]
                if given.shape == made.shape:
                    run = (id(self), self.calls)
                    found = Passage(self.dims(given), self.dims(made), alone, spoiled, run)
                self._streams.passed(path, given, made)
            self.record.passages.setdefault(path, []).append(found)

        return passed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), func.overloadpacket.__name__
        self.where = f"{name} in {self.path or 'the model itself'}"
        if self.meta:
            args, kwargs = self._to_meta(func, args, kwargs)
        arguments = by_name(func, args, kwargs)
        try:
            shortcut = SHORTCUTS.get(name) if self.meta else None
            outs = shortcut(arguments) if shortcut is not None else None
            if outs is None:
                outs = func(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            raise self._failed(str(error), arguments) from error
        tensors = [outs] if isinstance(outs, Tensor) else [out for out in flat(outs) if isinstance(out, Tensor)]
        self._apply(func, name, arguments, tensors)
        if self.record.watched and tensors:
            self._streams.meet(name.rstrip("_"), arguments, tensors[0])
        self._last = [*flat(list(arguments.values())), *tensors]
        if self.listener is not None:
            self.listener(Step(func, args, kwargs, outs, self.where))
        return outs

    def _apply(self, func: Any, name: str, arguments: dict[str, Any], outs: list[Tensor]) -> None:
        rule = self._rule(func, name, arguments)
        try:
            self._look_up(flat(list(arguments.values())))
            results = rule(self, arguments, outs) if outs else []
            if any([dim.size for dim in dims] != list(out.shape) for out, dims in zip(outs, results, strict=False)):
                raise ValueError("the rule of this operation does not give the shape that it has")
        except (ValueError, IndexError, KeyError) as error:
            if not self.forgiving:
                raise self._failed(str(error), arguments) from error
            self.record.unknown.setdefault(f"{func.namespace}::{name} (in this form)", self.path)
            results = unknown(self, arguments, outs)
        for out, dims in zip(outs, results, strict=False):
            if id(out) not in self._names:
                self._known[id(out)] = (out, dims)

    def _look_up(self, values: Sequence[Any]) -> None:
        """Positions along a dimension of units that are used for something pin it: they count the live units only."""
        for dim in [dim for value in values for dim in self._positions.get(id(value), [])]:
            self.labels.pin(dim, f"positions along it are used in {self.where}")

    def positions(self, tensor: Tensor, dims: Sequence[Dim]) -> None:
        self._positions[id(tensor)] = [dim for dim in dims if dim.labelled]

    def _rule(self, func: Any, name: str, arguments: dict[str, Any]) -> OpRuleFunction:
        library = func.namespace
        name = self.like.get(f"{library}::{name}", name if library in ("aten", "prims") else "")
        plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name  # relu_ is like relu
        if name in TABLE or plain in TABLE:
            self._note_numbers(factors(arguments), arguments)
            return TABLE.get(name) or TABLE[plain]
        if is_pointwise(func, plain) or (name and name in self.like.values()):
            numbers = tuple(value for value in arguments.values() if isinstance(value, (int, float)))
            self._note_numbers(numbers, arguments)
            return pointwise
        if not any(isinstance(value, Tensor) for value in flat(list(arguments.values()))):
            return nothing  # numbers by position, for all that is known
        self.record.unknown.setdefault(f"{library}::{func.overloadpacket.__name__}", self.path)
        return unknown

    def _note_numbers(self, numbers: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        numbers = tuple("nan" if number != number else number for number in numbers)  # nan is not equal to itself
        self.scalars.setdefault(self.where, set()).add(numbers)
        self.scalar_seen(numbers, arguments)

    def scalar_seen(self, numbers: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        """Called with the plain numbers of an operation; the proof compares them with those of the full run."""

    def _failed(self, message: str, arguments: dict[str, Any]) -> OpError:
        tensors = [value for value in flat(list(arguments.values())) if isinstance(value, Tensor)]
        return OpError(message, self.where, [dim for tensor in tensors for dim in self.dims(tensor)])

    def _to_meta(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Constants that the model makes on another device join the run on the meta device."""
        if "device" in kwargs or (
            not any(isinstance(value, (Tensor, list)) for value in args)
            and any(argument.name == "device" for argument in func._schema.arguments)
        ):
            kwargs["device"] = torch.device("meta")
        return [self._one_to_meta(value) for value in args], {key: self._one_to_meta(kwargs[key]) for key in kwargs}

    def _one_to_meta(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._one_to_meta(item) for item in value]
        if not isinstance(value, Tensor) or value.is_meta:
            return value
        if id(value) not in self._foreign:
            self._foreign[id(value)] = (value, torch.empty_like(value, device="meta"))
            if value.numel() == 1:  # a number in the form of a tensor, from numpy say
                self._note_numbers((value.item(),), {})
        return self._foreign[id(value)][1]

    def _written(self, numbers: tuple[Any, ...]) -> None:
        """A tensor is made of plain numbers: ``torch.tensor(q.size(-1))``. No operation tells of them."""
        self.where = f"a tensor of numbers in {self.path or 'the model itself'}"
        self._note_numbers(numbers, {})

    # --- ops/context.py ---

    @property
    def path(self) -> str:
        return self._stack[-1]

    def dims(self, tensor: Tensor) -> Dims:
        known = self._known.get(id(tensor))
        if known is not None and len(known[1]) == tensor.dim():
            return known[1]
        name = self._names.get(id(tensor))
        if name is None:
            name = self._storages.get(tensor.untyped_storage()._cdata)
            if name is None or self.model_shape(name) != tuple(tensor.shape):
                return [Dim(size) for size in tensor.shape]
        self.record.users.setdefault(name, set()).add(self.path)
        return [self._own(name, dim, tensor) for dim in range(tensor.dim())]

    def clues(self) -> list[Dim]:
        """The dimensions at hand when the model's own code raised: of the last operation and the last module."""
        last = [dim for tensor in self._last if isinstance(tensor, Tensor) for dim in self.dims(tensor)]
        return last + self._inputs.get(self._entered, [])

    def model_shape(self, name: str) -> tuple[int, ...]:
        return tuple(tensor_at(self.model, name).shape)

    def _own(self, name: str, dim: int, tensor: Tensor) -> Dim:
        """A dimension of a tensor of the model. Whole numbers and flags are positions or masks: they own no units."""
        key, size = (name, dim), tensor.shape[dim]
        if key not in self.record.owned:
            numbers = tensor.is_floating_point() or tensor.is_complex()
            ids = self.labels.fresh(size) if size > 1 and numbers else None
            self.record.owned[key] = Dim(size, ids, constant=size == 1, origin=key)
        return self.record.owned[key]

    def owned(self, tensor: Tensor, dim: int, like: Dim) -> Dim:
        name = self._names.get(id(tensor))
        if name is None or id(tensor) in self._known:
            return self.dims(tensor)[dim]
        key = (name, dim)
        self.record.users.setdefault(name, set()).add(self.path)
        if key not in self.record.owned and like.size == tensor.shape[dim]:
            self.record.owned[key] = Dim(like.size, like.ids, constant=like.size == 1, origin=key)
        self._role(self._own(name, dim, tensor), Role.ALONG)
        return self._own(name, dim, tensor)

    def _role(self, dim: Dim, role: Role) -> None:
        if dim.origin is not None:
            self.record.roles.setdefault(dim.origin, set()).add(role)

    def reads(self, dim: Dim) -> None:
        self._role(dim, Role.IN)
        if dim.origin is not None:
            self.record.readers.setdefault(dim.origin, set()).add(self.path)

    def makes(self, dim: Dim) -> None:
        self._role(dim, Role.OUT)

    def mixes_units(self, dim: Dim) -> None:
        if dim.ids is not None:
            self.record.mixes_units.append(dim.ids[dim.ids > 0])

    def heads(self, dim: Dim) -> None:
        if dim.ids is not None:
            self.record.heads.append(dim.ids[dim.ids > 0])

    def term(self, factor: int, dims: Sequence[Dim]) -> None:
        if self.counting:
            plain = int(np.prod([dim.size for dim in dims if not dim.labelled]))
            self.record.terms.append((factor * plain, tuple(dim for dim in dims if dim.labelled), self.path))

    def remember(self, names: Sequence[str], dim: Dim, index: int | None = None) -> None:
        if dim.ids is None:
            return
        module = self._modules[self.path]
        for name in names:
            value = getattr(module, name, None)
            if index is not None and isinstance(value, (tuple, list)) and index < len(value):
                value = value[index]
            if type(value) is int and value == dim.size:
                self._follow([name], dim.ids, index)

    def cut(self, part: Dim) -> None:
        """A part was cut out of a dimension with units, by position; the proof compares it with the full run's."""
        self.record.cuts.setdefault(self.where, []).append(part.vector())

    def viewed(self, dims: Sequence[Dim]) -> None:
        """Sizes that the running module remembers by a well-known name follow the dimensions it has just asked for."""
        module = self._modules[self.path]
        if not reshapes_by_attributes(module):
            return
        found = [_unique(dim.ids) for dim in dims if dim.ids is not None]
        if len(found) > 1:
            rows, columns = found[-2:]
            self.record.grids.append(Grid(self.path, type(module), rows, columns, self._inputs.get(self.path, [])))
        sizes = {name: value for name, value in vars(module).items() if type(value) is int}
        if len(found) == 1:
            names = [name for name, value in sizes.items() if value == len(found[0])]
            heads = [name for name in names if counts_heads(name) or sizes_a_head(name)]
            # Heads and head size of equal value cannot be told apart from one dimension alone.
            self._follow([name for name in names if sizes_a_width(name)] + heads * (len(heads) == 1), found[0])
        elif found:
            self._follow([n for n, value in sizes.items() if value == len(found[-2]) and counts_heads(n)], found[-2])
            self._follow([n for n, value in sizes.items() if value == len(found[-1]) and sizes_a_head(n)], found[-1])
        for name, value in vars(module).items():
            if isinstance(value, tuple) and ("shape" in name or "size" in name):
                for ids in found:
                    if value.count(len(ids)) == 1:
                        self._follow([name], ids, value.index(len(ids)))

    def _follow(self, names: Sequence[str], ids: IntArray, index: int | None = None) -> None:
        for name in names:
            self.record.sizes.setdefault((self.path, name, index), []).append(ids)


def _version(tensor: Tensor) -> int:
    """How often it was written to; of an inference tensor nobody counts."""
    return 0 if tensor.is_inference() else tensor._version


def _unique(ids: IntArray) -> IntArray:
    """The distinct labels of a dimension, in order of appearance."""
    _, first = np.unique(ids, return_index=True)
    return ids[np.sort(first)]


@contextmanager
def _fast_attention_off() -> Iterator[None]:
    """The inference shortcut of nn.MultiheadAttention is one opaque operation; the plain path can be followed."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
