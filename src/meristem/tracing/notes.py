"""Calls and plain numbers of a run: they are noted, and what a reduced model does otherwise than the full one fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from meristem.tracing.broadcast_sums import SUM_WHAT_IS_ONE, broadcast_letters
from meristem.tracing.expected import Expected
from meristem.tracing.module_scope import ModuleScope
from meristem.tracing.observations import NUMBER_OF_A_SIZE, OpError
from meristem.tracing.operation import flat
from meristem.tracing.run_context import ReducedContext, RunContext
from meristem.tracing.run_record import Event, FunctionCall, Numbers, RunRecord
from meristem.tracing.tensor_dims import TensorDims


class Notes:
    """Adds to ``record`` and ``also_to`` in a run of the full model; in one of a reduced model, follows ``expected``.

    The place of what is noted is where ``context`` is.
    """

    def __init__(
        self,
        record: RunRecord,
        expected: Expected | None,
        context: RunContext | ReducedContext,
        scope: ModuleScope,
        tensor_dims: TensorDims,
    ) -> None:
        self.also_to: list[Event] = []
        self._record, self._expected = record, expected
        self._context, self._scope, self._tensor_dims = context, scope, tensor_dims

    def call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """The model's code calls a function."""
        call = FunctionCall(name, self._scope.path)
        if self._expected is None:
            self._record.calls.append(call)
            self.also_to.append(call)
        elif not self._expected.repetition.called(call):
            self._context.where = str(call)
            raise self.failure("the code takes another way there", arguments)
        if name in SUM_WHAT_IS_ONE:
            self._context.where = str(call)
            self.numbers(("broadcast", *broadcast_letters(name, arguments)), arguments)

    def literal(self, numbers: Numbers) -> None:
        """A tensor is made of plain numbers: ``torch.tensor(q.size(-1))``. No operation tells of them."""
        self._context.where = f"a tensor of numbers in {self._scope}"
        self.numbers(numbers)

    def slices(self, tensor: Tensor, leave_out: tuple[bool, ...]) -> None:
        """A part of a wide dimension must not be all of a narrow one, nor the other way round."""
        self._context.where = f"a slice in {self._scope}"
        self.numbers(leave_out, {"self": tensor})

    def numbers(self, numbers: Numbers, arguments: Mapping[str, Any] | None = None) -> None:
        """The plain numbers of an operation; in a reduced model, those that the full one has there."""
        if not numbers:
            return
        for number in numbers:
            if number != number:  # nan is not equal to itself
                numbers = tuple("nan" if number != number else number for number in numbers)
                break
        if self._expected is None:
            self._record.note(self._context.where, numbers)
            self.also_to.append((self._context.where, numbers))
        elif not self._expected.numbers.fit(self._context.where, self._scope.path, numbers):
            raise self.failure(NUMBER_OF_A_SIZE, arguments or {})

    def failure(self, message: str, arguments: Mapping[str, Any]) -> OpError:
        """What went wrong in the operation at hand."""
        return OpError(message, self._context.where, self._tensor_dims.of_all(flat(list(arguments.values()))))
