"""Run a model once, with labels: every operation is executed for its shapes and applied to the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from meristem.space.state_tensors import state_tensors
from meristem.tracing.compiler_off import compiler_off
from meristem.tracing.decisions import Decisions
from meristem.tracing.expected import Expected
from meristem.tracing.function_calls import FunctionCalls
from meristem.tracing.labels import Dim
from meristem.tracing.last_operation import LastOperation
from meristem.tracing.meta_constants import MetaConstants
from meristem.tracing.meta_results import MetaResults
from meristem.tracing.model_call import Call
from meristem.tracing.model_copy import tensors_in
from meristem.tracing.module_calls import ModuleCalls
from meristem.tracing.module_scope import ModuleScope
from meristem.tracing.notes import Notes
from meristem.tracing.observations import Observations, OpError
from meristem.tracing.operation import (
    ExecutedOp,
    Signature,
    all_numbers,
    factors,
    flat,
    is_pointwise,
    makes_numbers,
    signature,
    without_underscore,
    written_tensors,
)
from meristem.tracing.ops.context import Dims, OpRuleFunction
from meristem.tracing.ops.elementwise import nothing, pointwise, unknown
from meristem.tracing.ops.op import Op
from meristem.tracing.ops.table import OPS, UNLISTED
from meristem.tracing.own_ops import OwnOps
from meristem.tracing.random_numbers import RandomNumbers
from meristem.tracing.replay import NOTHING, Replay
from meristem.tracing.restriction import Restriction
from meristem.tracing.run_context import ReducedContext, RunContext
from meristem.tracing.run_record import ACROSS, RunRecord
from meristem.tracing.tensor_dims import TensorDims, holds_numbers
from meristem.tracing.unit_labels import MismatchError


class LabelledRun(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """One labelled run of a model. What it learns goes to ``observations``.

    ``own`` are operations of the user's. With ``meta`` it is a run on the meta device, which has shapes but no numbers:
    there operations return what ``meta`` says. With ``counting`` it records cost terms. With ``expected`` it is strict:
    an operation that its rule cannot handle is an error, as is anything that differs from the full run. Without, such
    an operation counts as unknown. ``listener`` is told of every operation, and whether gradients are recorded there.
    """

    def __init__(
        self,
        model: nn.Module,
        observations: Observations,
        own: OwnOps,
        *,
        meta: MetaResults | None,
        counting: bool = False,
        expected: Expected | None = None,
        listener: Callable[[ExecutedOp], None] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.state: Any = None  # that the model returned last
        self.calls = 0
        self.uncounted: list[str] = []  # of what the model returned last, the names of what does not count
        self.record = RunRecord()
        self._model, self._observations, self._own = model, observations, own
        self._expected, self._listener = expected, listener
        self._scope = ModuleScope(model)
        self._tensor_dims = TensorDims(model, observations, self._scope)
        self._module_calls = ModuleCalls(observations, self._scope, self._tensor_dims)
        self._last = LastOperation(self._tensor_dims)
        self._replay: Replay | None = None
        self._context = _context(observations, self._scope, self._module_calls, counting, expected)
        self._notes = Notes(self.record, expected, self._context, self._scope, self._tensor_dims)
        self._meta_constants = MetaConstants(self._notes.numbers) if meta is not None else None
        self._functions = FunctionCalls(self._notes.literal, self._notes.call, self._notes.slices)
        self._random_numbers = RandomNumbers()
        self._meta_results = meta
        repeated = None if expected is None else expected.repetition.decisions
        self._decisions = None if meta is not None else Decisions(self.record.decisions, repeated)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch's guard against being compiled would import the whole compiler, a second, at the first trace."""
        return False

    def replaying(self, restriction: Restriction) -> LabelledRun:
        """The same run, which takes over what was recorded of the model's behaviour, or adds to it."""
        self._tensor_dims.restriction = restriction
        self._replay = Replay(
            restriction,
            self._module_calls,
            self._last,
            self.record,
            self._expected,
        )
        self._notes.also_to = self._replay.events
        return self

    # --- running the model ---

    def follow(self, call: Call) -> None:
        """Run the model; if it carries a state that the example lacks, run it again with the one it returned."""
        self.execute(call)
        if call.carried is not None and call.state is None:
            self._context.counting = False
            self.execute(call.with_state(self.state))
        missing = self._expected.repetition.missing if self._expected is not None else None
        if missing is not None:
            self._context.where = str(missing)
            raise OpError("the code does not come there", self._context.where, self._last.dims())

    def execute(self, call: Call) -> list[Tensor]:
        """Run the model and pin what counts of its outputs, but for the state that is carried on; what counts."""
        for tensor in call.tensors():  # nothing about an input may change
            self._tensor_dims.set_input(tensor, [Dim(size) for size in tensor.shape])
        self._label_example_state(call)
        if self._replay is not None and self._expected is None:
            self._replay.takes_over = not self._context.counting and not self._observations.watched
        self.calls += 1
        with (
            torch.set_grad_enabled(self._listener is not None),
            _fast_attention_off(),
            compiler_off(),
            self._module_calls.followed(None if self._replay is None else self._replay.layer),
            self._random_numbers.repeated(),
            self._functions,
            self,
        ):
            outputs = call.on(self._model)
        counted, self.uncounted = call.counted(outputs)
        rest, self.state = call.split(counted)
        self._context.where = "the model's output"
        self._tensor_dims.pin_positions(tensors_in(counted), self._context.where)
        for dim in self._tensor_dims.of_all(rest):
            self._observations.labels.pin(dim, "it is a model output")
        self._unite_returned_state()
        return tensors_in(counted)

    def _label_example_state(self, call: Call) -> None:
        """The state of the example may have any units that the one which the model returns has."""
        states = self._observations.states
        for path, tensor in state_tensors(call.state):
            if tensor in self._tensor_dims:  # the model returned it
                continue
            if path not in states:
                fresh, labelled = self._observations.labels.fresh, holds_numbers(tensor)
                states[path] = [Dim(size, fresh(size) if labelled and size > 1 else None) for size in tensor.shape]
            dims = zip(states[path], tensor.shape, strict=True)
            self._tensor_dims.set(tensor, [dim if dim.labelled else Dim(size) for dim, size in dims])

    def _unite_returned_state(self) -> None:
        """What the model returns as its state is what it is given at the next call."""
        labels, self._context.where = self._observations.labels, "the state it returns"
        for path, tensor in state_tensors(self.state):
            returned = self._tensor_dims.of(tensor)
            copies = [Dim(dim.size, dim.ids, dim.constant) for dim in returned]
            expected = self._observations.states.setdefault(path, copies)
            try:
                for one, two in zip(expected, returned, strict=True):
                    if one.size == two.size:
                        labels.unite(one, two, "the state that is carried on is fixed there")
                        continue
                    for dim in (one, two):
                        labels.pin(dim, f"it changes from call to call in {path}")
            except ValueError as error:
                raise OpError(str(error), self._context.where, returned) from error

    # --- one operation ---

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():  # what is done here is not the model's
            return self._executed(func, args, dict(kwargs or {}))

    def _executed(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        called = signature(func)
        name = called.name
        self._context.where = self._scope.place_of(name)
        seeded = called.draws and self._random_numbers.come_from_a_seed(kwargs)
        if self._meta_constants is not None:
            args, kwargs = self._meta_constants.arguments(called, args, kwargs)
        arguments = called.by_name(args, kwargs)
        builtin = name if called.namespace in ("aten", "prims") else ""
        own = self._own.get(f"{called.namespace}::{name}", builtin) if self._own else builtin
        op, known_as = (own, "") if isinstance(own, Op) else (OPS.get(own, UNLISTED), own)
        ours = known_as == name and called.namespace == "aten"

        def make() -> Any:
            if self._meta_results is None or not ours:
                return func(*args, **kwargs)
            return self._meta_results.of(func, called, op, args, kwargs, arguments)

        replay = self._replay if ours and not called.draws else None
        key = None if replay is None else replay.key(func, name, args, kwargs)
        since = (0, 0) if replay is None else replay.state
        try:
            outs = NOTHING if replay is None or key is None else replay.operation(key, called, args, kwargs, make)
            replayed = outs is not NOTHING
            if not replayed:
                outs = make()
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            raise self._notes.failure(str(error), arguments) from error
        if self._decisions is not None:
            outs = self._decisions.of(name, flat(list(arguments.values())), outs)
        tensors = [outs] if isinstance(outs, Tensor) else [out for out in flat(outs) if isinstance(out, Tensor)]
        if not replayed:
            rule = nothing if seeded else self._rule(op, known_as, called, func, arguments)
            self._apply(rule, func, arguments, tensors)
            if replay is not None:
                replay.learn(key, rule, func, args, kwargs, outs, since)
        if not self._functions.inside and tensors and makes_numbers(name):
            self._notes.call(without_underscore(name), arguments)
        if self._observations.watched and tensors:
            self._module_calls.shortcuts.op_executed(op, arguments, tensors[0])
        self._last.executed([*arguments.values(), *tensors])
        if self._listener is not None:
            self._listener(ExecutedOp(func, args, kwargs, outs, self._context.where, torch.is_grad_enabled()))
        return outs

    def _rule(self, op: Op, known_as: str, called: Signature, func: Any, arguments: dict[str, Any]) -> OpRuleFunction:
        """The rule that an operation follows. The numbers it is called with are noted on the way."""
        if op.rule is not None:
            self._notes.numbers((all_numbers if op.rule is nothing else factors)(arguments), arguments)
            return op.rule
        if called.pointwise if known_as == called.name else is_pointwise(func, without_underscore(known_as)):
            numbers = tuple(value for value in arguments.values() if isinstance(value, (int, float)))
            self._notes.numbers(numbers, arguments)
            return pointwise
        if not any(isinstance(value, Tensor) for value in flat(list(arguments.values()))):
            self._notes.numbers(all_numbers(arguments))
            return nothing  # numbers by position, for all that is known
        self._observations.unknown.setdefault(f"{func.namespace}::{func.overloadpacket.__name__}", self._scope.path)
        return unknown

    def _apply(self, rule: OpRuleFunction, func: Any, arguments: dict[str, Any], outs: list[Tensor]) -> None:
        """Label the results of an operation by its rule."""
        self._context.sizes_run_across()  # those of an operation that failed
        try:
            self._tensor_dims.pin_positions(arguments.values(), self._context.where)
            results = list(rule(self._context, arguments, outs)) if outs else []
            for out, dims in zip(outs, results, strict=False):
                if [dim.size for dim in dims] != [*out.shape]:
                    raise ValueError("the rule of this operation does not give the shape that it has")
            self._set_results(func, arguments, outs, results)
        except (ValueError, IndexError, KeyError) as error:
            if self._expected is not None:
                raise self._notes.failure(str(error), arguments) from error
            name = f"{func.namespace}::{func.overloadpacket.__name__} (in this form)"
            self._observations.unknown.setdefault(name, self._scope.path)
            self._set_results(func, arguments, outs, unknown(self._context, arguments, outs))
        if sizes := self._context.sizes_run_across():
            self._notes.numbers((ACROSS, *sizes), arguments)

    def _set_results(self, func: Any, arguments: dict[str, Any], outs: list[Tensor], results: list[Dims]) -> None:
        """Set the dimensions of the results, some of which may be arguments that were written to."""
        written = written_tensors(func, arguments)
        if not written:
            for out, dims in zip(outs, results, strict=False):
                self._tensor_dims.set_result(out, dims)
            return
        if not outs:  # several at once
            outs, results = written, unknown(self._context, arguments, written)
        for out, dims in zip(outs, results, strict=False):
            if any(out is tensor for tensor in written):
                self._tensor_dims.set_written(out, dims, self._context.where)
            else:
                self._tensor_dims.set_result(out, dims)

    # --- failures and results ---

    def failure_outside_operations(self, message: str) -> OpError:
        """The model's own code raised: the dimensions at hand are those of the last operation and the last module."""
        try:
            dims = [*self._last.dims(), *self._module_calls.inputs_of(self._scope.last_entered)]
        except MismatchError:  # the last operation was on a tensor that was never seen
            dims = []
        return OpError(message, self._scope.path or "the model", dims)

    def dims(self, tensor: Tensor) -> Dims:
        """The dimensions of a tensor that the run has seen."""
        return self._tensor_dims.of(tensor)

    def forget(self) -> None:
        """Let go of all tensors: a run and its modes hold each other, so that it may live on for a while."""
        self._tensor_dims.forget()
        self._last.executed(())


def _context(
    observations: Observations, scope: ModuleScope, calls: ModuleCalls, counting: bool, expected: Expected | None
) -> RunContext | ReducedContext:
    if expected is None:
        return RunContext(observations, scope, calls.tensor_dims, calls, counting=counting)
    return ReducedContext(observations, calls.tensor_dims, expected.cuts)


@contextmanager
def _fast_attention_off() -> Iterator[None]:
    """The inference shortcut of nn.MultiheadAttention is one opaque operation; the plain path can be followed."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
