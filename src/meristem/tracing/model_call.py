"""How a model is called: its inputs, and among them the state that it returns to be given back at the next call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from meristem.errors import TraceError
from meristem.tracing.counted_outputs import OutputChoice, without_uncounted
from meristem.tracing.model_copy import tensors_in

Carried = int | str  # the position, or the name, of the state in what a model takes and in what it returns


@dataclass(frozen=True)
class Call:
    """A call of a model: its inputs by position and by name.

    ``carried`` is where the state lies in what the model returns, ``place`` where it goes: an index of ``inputs``, or a
    key of ``named``. ``outputs`` says which of the model's outputs count.
    """

    inputs: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    carried: Carried | None = None
    place: int | str | None = None
    outputs: OutputChoice | None = None

    def on(self, model: nn.Module) -> Any:
        return model(*self.inputs, **self.named)

    def mapped(self, change: Callable[[Any], Any]) -> Call:
        """The same call with all its values changed."""
        inputs, named = tree_map(change, (self.inputs, dict(self.named)))
        return replace(self, inputs=inputs, named=named)

    @property
    def state(self) -> Any:
        """The state that the model is given, or None."""
        if isinstance(self.place, int):
            return self.inputs[self.place] if self.place < len(self.inputs) else None
        return None if self.place is None else self.named.get(self.place)

    def with_state(self, state: Any) -> Call:
        if isinstance(self.place, int):
            return replace(self, inputs=(*self.inputs[: self.place], state, *self.inputs[self.place + 1 :]))
        assert self.place is not None
        return replace(self, named={**self.named, self.place: state})

    def tensors(self) -> list[Tensor]:
        """All tensors that the model is given but for those of the state."""
        rest = self.with_state(None) if self.place is not None else self
        return tensors_in((rest.inputs, dict(rest.named)))

    def counted(self, returned: Any) -> tuple[Any, list[str]]:
        """What counts of what a model returned, and the names of what does not."""
        return without_uncounted(returned, self.outputs, self.carried)

    def split(self, outputs: Any) -> tuple[list[Tensor], Any]:
        """The tensors in what counts of what a model returned but for its state, and the state."""
        if self.carried is None:
            return tensors_in(outputs), None
        if isinstance(self.carried, int) and isinstance(outputs, (tuple, list)) and self.carried < len(outputs):
            rest = [value for at, value in enumerate(outputs) if at != self.carried]
        elif isinstance(outputs, Mapping) and self.carried in outputs:
            rest = [value for key, value in outputs.items() if key != self.carried]
        else:
            returned = f"a {type(outputs).__name__}"
            returned += f" of {len(outputs)}" if isinstance(outputs, (tuple, list)) else ""
            raise TraceError(
                f"carried={self.carried!r} is to be the place of the state in what the model returns, but it returns "
                f"{returned}; give its position in the tuple, or its key in the dict"
            )
        return tensors_in(rest), outputs[self.carried]


def call_of(
    model: nn.Module,
    inputs: tuple[Any, ...],
    named: Mapping[str, Any],
    carried: Carried | None,
    outputs: OutputChoice | None = None,
) -> Call:
    """The call with the place of the state found, from the model's own signature if it is not among the inputs."""
    if carried is None:
        return Call(inputs, named, outputs=outputs)
    parameters = [
        name
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    place: int | str | None = None
    if isinstance(carried, str):
        place = (
            parameters.index(carried) if carried in parameters and parameters.index(carried) < len(inputs) else carried
        )
    elif 0 <= carried <= len(inputs) and not (carried < len(parameters) and parameters[carried] in named):
        place = carried
    elif 0 <= carried < len(parameters):
        place = parameters[carried]
    if place is None:
        raise TraceError(
            f"carried={carried!r} is to be the position of the state among the model's inputs, but its forward takes "
            f"({', '.join(parameters)}); give the position, or the name if it is a keyword"
        )
    return Call(inputs, named, carried, place, outputs)
