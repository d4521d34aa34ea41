"""Blocks whose result meets what went into them outside of them: left out, they would not just pass it on.

`x + block(x)` would become `x + x`, `x - block(x)` nothing at all, `x + block(norm(x))` a sum with the norm.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

from torch import Tensor

from meristem.tracing.observations import Record
from meristem.tracing.ops.context import Arguments, tensors_of

_MEETINGS = frozenset({"add", "sub", "rsub", "mul", "div", "lerp", "addcmul", "addcdiv"})
# Operations that scale, norm, drop or squash: what comes out is still told by what goes in. A sum is not among them:
# a stream of residual blocks would be one and the same from its start to its end.
_LIGHT = frozenset(
    {
        *("mul", "div", "neg", "_to_copy", "clone", "native_dropout"),
        *("sigmoid", "tanh", "relu", "gelu", "silu", "leaky_relu", "elu", "mish", "softplus"),
        *("hardtanh", "hardsigmoid", "hardswish", "_prelu_kernel"),
        *("native_layer_norm", "native_group_norm", "_fused_rms_norm", "rms_norm"),
        *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
    }
)
# The same elements in another shape or order: an image whose pixels become tokens for a block, and back.
_MOVES = frozenset({"view", "_unsafe_view", "_reshape_alias", "permute", "transpose", "t", "squeeze", "unsqueeze"})


class Streams:
    """The results of watched modules in one run. All its tensors live as long as it does: ids tell them apart."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._passed: dict[int, list[tuple[str, Tensor]]] = {}  # results, and what went in
        self._light: dict[int, list[Tensor]] = {}  # results of light operations, and what went in

    def passed(self, path: str, given: Tensor, made: Tensor) -> None:
        """The module at ``path`` was given one and made the other."""
        self._passed.setdefault(id(made), []).append((path, given))

    def meet(self, name: str, arguments: Arguments, out: Tensor) -> None:
        """Look at an operation: does a module's result meet what went into it?"""
        tensors = tensors_of(arguments)
        if name in _MEETINGS:
            for made, other in permutations(tensors, 2):
                self._look_behind(made, other)
        if name in _LIGHT or name in _MOVES:
            like = [value for value in tensors if value is not out and (name in _MOVES or value.shape == out.shape)]
            self._light.setdefault(id(out), []).extend(like)

    def _look_behind(self, made: Tensor, other: Tensor) -> None:
        for result in self._behind(made):
            for path, given in self._passed.get(id(result), []):
                # What is itself made of the result meets the result, not what went into the module.
                if {id(step) for step in self._behind(given)} & {id(step) for step in self._behind(other, result)}:
                    self._record.added.add(path)

    def _behind(self, tensor: Tensor, end: Any = None) -> list[Tensor]:
        """A tensor and those it was made of by light operations, but not ``end`` and what lies behind that."""
        found = {id(tensor): tensor} if tensor is not end else {}
        waiting = list(found.values())
        while waiting:
            for value in self._light.get(id(waiting.pop()), []):
                if value is not end and id(value) not in found:
                    found[id(value)] = value
                    waiting.append(value)
        return list(found.values())
