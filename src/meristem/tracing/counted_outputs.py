"""Which of a model's outputs count: those keep their sizes, whatever grows and shrinks; the sizes of others may follow.

Models of language and vision libraries return, beside loss and logits, what they have computed on the way: hidden
states, attention maps, a cache of keys and values. Nobody trains on these, and if they counted, they would pin nearly
every width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from meristem.errors import TraceError, nearest
from meristem.tracing.model_copy import tensors_in

OutputChoice = int | str | tuple[int | str, ...]
ALL = "all"

# Parts of names that say that a value was computed on the way to the loss or the logits beside it.
_ON_THE_WAY = ("hidden_state", "attentions", "past_key_values", "model_output", "router_logits", "mems")


def as_choice(outputs: int | str | Sequence[int | str] | None) -> OutputChoice | None:
    """A choice as a user gives it, as frozen data."""
    return outputs if outputs is None or isinstance(outputs, (int, str)) else tuple(outputs)


def without_uncounted(returned: Any, choice: OutputChoice | None, carried: int | str | None) -> tuple[Any, list[str]]:
    """What counts of ``returned``, and the names of what does not.

    ``choice`` is ``"all"``, the names or positions that count, or None: all but what a loss or logits were computed
    from, if there is one of these. What is ``carried`` on is kept.
    """
    parts = _parts(returned)
    if choice == ALL or (parts is None and choice is None):
        return returned, []
    if parts is None:
        raise TraceError(
            f"outputs={choice!r} names a part of what the model returns, but it returns a {type(returned).__name__}; "
            f"leave outputs away"
        )
    if choice is None:
        dropped = _dropped_by_default(parts)
    else:
        wanted = choice if isinstance(choice, tuple) else (choice,)
        for name in wanted:
            _check(name, parts)
        dropped = [key for key in parts if key not in wanted]
    dropped = [key for key in dropped if key != carried and tensors_in(parts[key])]
    kept = {key: value for key, value in parts.items() if key not in dropped}
    return (kept if dropped else returned), [str(key) for key in dropped]


def counted_tensors(returned: Any, choice: OutputChoice | None, carried: int | str | None = None) -> list[Tensor]:
    """The tensors in what a model returned whose sizes stay."""
    return tensors_in(without_uncounted(returned, choice, carried)[0])


def _parts(returned: Any) -> dict[Any, Any] | None:
    """The values that a model returned, by name or position; None if it is a single one."""
    if isinstance(returned, Mapping):
        return dict(returned)
    if dataclasses.is_dataclass(returned):
        return {field.name: getattr(returned, field.name) for field in dataclasses.fields(returned)}
    if isinstance(returned, tuple) and hasattr(returned, "_fields"):
        return dict(zip(returned._fields, returned, strict=True))
    return dict(enumerate(returned)) if isinstance(returned, (tuple, list)) else None


def _dropped_by_default(parts: Mapping[Any, Any]) -> list[Any]:
    names = [key for key in parts if isinstance(key, str)]
    on_the_way = [name for name in names if any(part in name for part in _ON_THE_WAY)]
    results = [name for name in names if name not in on_the_way and (name == "loss" or "logits" in name)]
    return on_the_way if any(tensors_in(parts[name]) for name in results) else []


def _check(name: int | str, parts: Mapping[Any, Any]) -> None:
    if name not in parts:
        there = [str(key) for key in parts]
        raise TraceError(f"outputs={name!r} is not among what the model returns; {nearest(str(name), there)}")
