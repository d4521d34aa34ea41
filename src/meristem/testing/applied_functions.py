"""Functions with a backward pass of their own (``torch.autograd.Function``), as a model's code applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.autograd import Function

Apply = Callable[..., Any]


@dataclass(frozen=True, eq=False, slots=True)
class AppliedFunction:
    """One call of such a function, with the real tensors of its arguments and results."""

    apply: Apply
    arguments: Sequence[Any]
    outs: Any
    differentiated: bool


@contextmanager
def followed(around: Callable[[Apply, Sequence[Any]], Any]) -> Iterator[None]:
    """Call ``around(apply, arguments)`` instead of every ``apply``."""
    original = vars(Function)["apply"]

    def apply(cls: type[Function], *arguments: Any) -> Any:
        return around(original.__get__(None, cls), arguments)

    Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Function.apply = original  # type: ignore[method-assign]
