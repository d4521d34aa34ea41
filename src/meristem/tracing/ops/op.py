"""What the tracer knows about one operation: a frozen entry of the table in ``table.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meristem.tracing.ops.context import OpRuleFunction

ShapeFunction = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Op:
    """How an operation treats labels, units, the identity of what flows through it, and shapes.

    ``rule`` gives the dimensions of the results. Without one the operation goes element by element, as torch tags it.

    ``zeros_count`` says that a unit that is zero still counts, as in a mean, a maximum or a softmax: the result differs
    from the one without that unit. In a sum or a product of matrices it does not.

    The next three follow a block's result to where it meets what went into the block (``depth/shortcuts.py``):
    ``combines`` two tensors position by position; ``light`` operations scale, norm, drop or squash, so that the result
    still stands for its input; ``moves`` the same elements into another shape or order. A sum is not light: otherwise a
    stream of residual blocks would be one and the same tensor from its start to its end.

    ``shape`` makes the result on the meta device without torch (see ``shapes.py``); what torch tags as pointwise needs
    none.
    """

    rule: OpRuleFunction | None = None
    zeros_count: bool = False
    combines: bool = False
    light: bool = False
    moves: bool = False
    shape: ShapeFunction | None = None
