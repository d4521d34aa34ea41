"""What a model decides by its numbers: which boxes are kept, which value is the largest, whether a sum exceeds a bound.

A reduced model has other numbers, so it would decide otherwise and have tensors of other sizes, for no other reason. In
a proof by real numbers it is given the decisions of the full model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

Decision = tuple[str, list[Any]]  # the operation, and its results

_READ = "_local_scalar_dense"  # a number of a tensor becomes one of Python's
_SHAPED_BY_NUMBERS = ("nonzero", "nms", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive")


class Decisions:
    """Notes the decisions of a run in ``made``; those of the full run are ``repeated`` while they are the same ones."""

    def __init__(self, made: list[Decision], repeated: Sequence[Decision] | None) -> None:
        self._made, self._repeated = made, repeated

    def of(self, name: str, arguments: Sequence[Any], outs: Any) -> Any:
        """What an operation returns: its own results, or those that it had in the full run."""
        results = list(outs) if isinstance(outs, (tuple, list)) else [outs]
        if not _decides(name, arguments, results):
            return outs
        at = len(self._made)
        self._made.append((name, results))
        if self._repeated is None or at >= len(self._repeated) or self._repeated[at][0] != name:
            return outs
        now = [_repeated(name, mine, theirs) for mine, theirs in zip(results, self._repeated[at][1], strict=True)]
        return type(outs)(now) if isinstance(outs, (tuple, list)) else now[0]


def _repeated(name: str, mine: Any, theirs: Any) -> Any:
    """The result of the full run, if it is a decision about the same things."""
    if not isinstance(mine, Tensor):
        return theirs
    same_things = mine.shape == theirs.shape or name in _SHAPED_BY_NUMBERS
    return theirs.clone() if _is_choice(mine) and same_things else mine


def _decides(name: str, arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether whole numbers or truth values come of real numbers; what is written in place is no result."""
    if name == _READ or name in _SHAPED_BY_NUMBERS:
        return True
    if name.endswith("_") or not any(isinstance(each, Tensor) and _is_choice(each) for each in results):
        return False
    return any(isinstance(each, Tensor) and each.is_floating_point() for each in arguments)


def _is_choice(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()
