"""Runs that repeat what the full model has shown: by the token of what it is given, an operation or layer is looked up.

The first run of the full model records; later runs, in another mode or of reduced models, look up. What they find there
they take over, after the calls and numbers were compared; for all else they do as the first did.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meristem.tracing.behaviour import LayerBehaviour, OpBehaviour, Token, plain_arguments
from meristem.tracing.expected import Expected
from meristem.tracing.labels import Dim
from meristem.tracing.last_operation import LastOperation
from meristem.tracing.module_calls import ModuleCalls
from meristem.tracing.natural import FITS, has_reshapes, is_natural, settings_of, without_sizes
from meristem.tracing.operation import Signature, flat, signature
from meristem.tracing.ops.context import OpRuleFunction
from meristem.tracing.ops.elementwise import pointwise
from meristem.tracing.restriction import Restriction
from meristem.tracing.run_record import Event, FunctionCall, RunRecord
from meristem.tracing.unit_labels import KnownUnitLabels

Key = Hashable
NOTHING = object()  # the full run recorded nothing that could be taken over
_UNSEEN = object()
_MOST_POSSIBLE = 16  # results of one operation in one module


class Replay:
    """What one run takes over from the full model's behaviour, or adds to it.

    ``expected`` is what a reduced model must repeat; a run of the full model has none, it adds to ``record``. This is
    for the meta device: where numbers count, operations are executed.
    """

    def __init__(
        self,
        restriction: Restriction,
        calls: ModuleCalls,
        last: LastOperation,
        record: RunRecord,
        expected: Expected | None,
    ) -> None:
        self.restriction = restriction
        self.takes_over = expected is not None
        self.events: list[Event] = []  # that a run of the full model has noted so far
        self._behaviour = restriction.behaviour
        self._calls, self._last = calls, last
        self._tensor_dims, self._scope, self._observations = calls.tensor_dims, calls.scope, calls.observations
        self._record, self._expected = record, expected

    def _takes_over(self, events: Sequence[Event], path: str) -> bool:
        """Note these events; False, and nothing is noted, if a reduced model must not show them here."""
        if self._expected is not None:
            return self._expected.repeats(events, path)
        for event in events:
            if isinstance(event, FunctionCall):
                self._record.calls.append(event)
            else:
                self._record.note(*event)
        self.events += events
        return True

    @property
    def state(self) -> tuple[int, int]:
        """How much was noted so far, and how many meetings were uneven."""
        return len(self.events), self._observations.labels.uneven

    # --- operations ---

    def key(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
        """All that the effect of an operation on labels depends on: its place, the tokens it is given, and the rest."""
        tokens = []
        for value in flat([*args, *kwargs.values()]):
            if isinstance(value, Tensor):
                token = self._tensor_dims.token(value)
                if token is None:
                    return None
                tokens.append(token)
        if not tokens:
            return None
        rest = plain_arguments((*without_sizes(name, args), *kwargs.items()))
        return self._scope.path, func, tuple(tokens), rest

    def operation(
        self, key: Key, called: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], make: Callable[[], Any]
    ) -> Any:
        """What an operation returns, if the full run recorded it; ``make`` makes that in the ordinary way."""
        recorded = self._behaviour.ops.get(key) if self.takes_over else None
        if recorded is None:
            return NOTHING
        tensors = [value for value in flat([*args, *kwargs.values()]) if isinstance(value, Tensor)]
        if called.in_place:
            if self._tensor_dims.has_shared_memory:
                return NOTHING
            outs: Any = args[0]
        elif recorded.plain and called.returns_new and all(tensor.is_contiguous() for tensor in tensors):
            made = [self.restriction.empty(*each) for each in zip(recorded.outs, recorded.dtypes, strict=True)]
            outs = made[0] if recorded.single else tuple(made)
        else:
            outs = make()
        results = (outs,) if recorded.single else outs
        for out, token in zip(results, recorded.outs, strict=True):
            if [*out.shape] != self.restriction.shape(token):
                return NOTHING
        if not self._takes_over(recorded.events, self._scope.path):
            return NOTHING
        for name in recorded.users:
            self._observations.users.setdefault(name, set()).add(self._scope.path)
        for out, token in zip(results, recorded.outs, strict=True):
            self._tensor_dims.set_token(out, token)
        return outs

    def learn(
        self,
        key: Key | None,
        rule: OpRuleFunction,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outs: Any,
        since: tuple[int, int],
    ) -> None:
        """Add what an operation has just done to the behaviour; in a reduced model, see what its results are left of.

        ``since`` is what `state` was before it.
        """
        tensors = [outs] if isinstance(outs, Tensor) else outs
        if not isinstance(tensors, (tuple, list)) or not all(isinstance(out, Tensor) for out in tensors):
            return
        if self._expected is not None:
            self._recognise(func, tensors)
            return
        called = signature(func)
        if key is None and not called.written:  # now all that it read has been seen
            key = self.key(func, called.name, args, kwargs)
        tokens = [self._tensor_dims.token(out) for out in tensors]
        if None in tokens:
            return
        results = tuple(token for token in tokens if token is not None)
        keeps_shape = not called.written or (called.in_place and rule is pointwise)
        if key is not None and keeps_shape and is_natural(rule, args) and self._observations.labels.uneven == since[1]:
            given = [value for value in flat([*args, *kwargs.values()]) if isinstance(value, Tensor)]
            self._behaviour.ops[key] = OpBehaviour(
                results,
                tuple(out.dtype for out in tensors),
                single=isinstance(outs, Tensor),
                plain=all(tensor.is_contiguous() for tensor in (*given, *tensors)),
                events=tuple(self.events[since[0] :]),
                users=tuple(name for name in map(self._tensor_dims.name_of, given) if name is not None),
            )
        possible = self._behaviour.possible.setdefault((self._scope.path, func), [])
        if results not in possible and len(possible) < _MOST_POSSIBLE:
            possible.append(results)

    def _recognise(self, func: Any, outs: Sequence[Tensor]) -> None:
        """Find out whether what a rule has made of a reduced model is what is left of what it makes of the full one."""
        for tokens in self._behaviour.possible.get((self._scope.path, func), ()):
            if len(tokens) == len(outs) and all(map(self._is_left, outs, tokens)):
                for out, token in zip(outs, tokens, strict=True):
                    self._tensor_dims.recognise(out, token)
                return

    def _is_left(self, out: Tensor, token: Token) -> bool:
        dims = self._tensor_dims.of(out)
        return len(dims) == len(token) and all(map(_same, dims, self.restriction.dims(token)))

    # --- layers ---

    def layer(self, path: str, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Call a natural layer, or take over what the full run recorded of it."""
        given = args[0] if len(args) == 1 and not kwargs else None
        if type(given) is not Tensor:
            return self._calls.call(path, module, args, kwargs)
        with torch._C.DisableTorchFunction():
            token, names, settings = self._tensor_dims.token(given), self._names(module), settings_of(module)
            key: Key | None = None
            if None not in (token, names, settings) and self._may_take_over(module, given):
                key = path, module.training, token, given.dtype, names, settings
            recorded = self._behaviour.layers.get(key, _UNSEEN) if key is not None else None
            if self.takes_over and isinstance(recorded, LayerBehaviour):
                is_apart = not (recorded.same_object and self._tensor_dims.has_shared_memory)
                if is_apart and self._takes_over(recorded.events, path):
                    return self._taken_over(path, given, token or (), recorded)
        if recorded is not _UNSEEN or self._expected is not None:
            return self._calls.call(path, module, args, kwargs)
        return self._observed(key, path, module, given)

    def _may_take_over(self, module: nn.Module, given: Tensor) -> bool:
        """Whether the layer is natural as it is now, and labels come out of it as they are."""
        labels = self._observations.labels
        if isinstance(labels, KnownUnitLabels) and labels.lenient and has_reshapes(module, given):
            return False
        return given.is_contiguous() and FITS[type(module)](module, given)

    def _names(self, module: nn.Module) -> tuple[str, ...] | None:
        """The names of the tensors that a layer holds; None if one of them is not the model's, or has another size."""
        names = []
        for tensors in (module._parameters, module._buffers):
            for tensor in tensors.values():
                if tensor is not None:
                    name = self._tensor_dims.name_of(tensor)
                    if name is None or not self._tensor_dims.has_its_shape(name, tensor):
                        return None
                    names.append(name)
        return tuple(names)

    def _taken_over(self, path: str, given: Tensor, token: Token, recorded: LayerBehaviour) -> Tensor:
        if recorded.last is not None:
            self._last.taken_over(recorded.last)
        self._scope.last_entered = path
        self._calls.inputs[path] = token
        for name in recorded.users:
            self._observations.users.setdefault(name, set()).add(path)
        if recorded.same_object:
            return given
        with torch._C._DisableTorchDispatch():
            out = self.restriction.empty(recorded.out, recorded.dtype)
        self._tensor_dims.set_token(out, recorded.out)
        return out

    def _observed(self, key: Key, path: str, module: nn.Module, given: Tensor) -> Any:
        """Call a layer of the full model, and add what it does to the behaviour."""
        self._behaviour.layers[key] = None
        before, last_values = self.state, self._last.values
        out = self._calls.call(path, module, (given,), {})
        with torch._C.DisableTorchFunction():
            if type(out) is Tensor and out.is_contiguous() and self._observations.labels.uneven == before[1]:
                executed = self._last.values is not last_values
                token, last = self._tensor_dims.token(out), self._last.token() if executed else None
                names = self._names(module)
                if token is not None and (last is not None or not executed) and names is not None:
                    users = tuple(name for name in names if name in self._observations.users)
                    events = tuple(self.events[before[0] :])
                    self._behaviour.layers[key] = LayerBehaviour(token, out.dtype, out is given, events, users, last)
        return out


def _same(one: Dim, two: Dim) -> bool:
    if one.size != two.size or one.constant != two.constant or one.merged != two.merged:
        return False
    if one.ids is two.ids:
        return True
    return one.ids is not None and two.ids is not None and np.array_equal(one.ids, two.ids)
