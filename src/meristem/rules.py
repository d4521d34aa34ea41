"""Rules for layers and operations of your own, to pass to ``trace(..., rules=[...])``.

Nearly everything is learnt from the operations that a model runs. A :class:`LayerRule` is needed only where a layer
remembers a size that no operation shows, or demands an equality that only its code knows; an :class:`OpRule` where an
operation is not one of torch's, or is followed too cautiously.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class LayerRule:
    """What a type of layer remembers and demands.

    ``sizes`` are (attribute, tensor, dim) triples: the attribute is the size of that dimension. An entry of a tuple is
    written ``"normalized_shape[0]"``. ``ties`` are lists of (tensor, dim) pairs that must keep the same units.
    ``floors`` are (tensor, dim, minimum) triples: the dimension may not have fewer positions than that.

    >>> LayerRule(nn.Linear, sizes=lambda layer: [("in_features", "weight", 1), ("out_features", "weight", 0)]).layer
    <class 'torch.nn.modules.linear.Linear'>
    """

    layer: type[nn.Module]
    sizes: Callable[[nn.Module], Sequence[tuple[str, str, int]]]
    ties: Callable[[nn.Module], Sequence[Sequence[tuple[str, int]]]] = lambda layer: ()
    floors: Callable[[nn.Module], Sequence[tuple[str, int, int]]] = lambda layer: ()


@dataclass(frozen=True)
class OpRule:
    """An operation of your own (``"mylib::op"``): ``like`` a known one, such as ``"relu"``, or a ``rule`` for it.

    A rule is a function of the context, the arguments by name and the real results, which are tensors. It returns the
    dimensions of every result. ``context.dims(tensor)`` are those of an argument, ``context.meet(one, two)`` is what
    two become that meet position by position, ``context.fixed(size)`` has no units, ``context.pin(dim, reason)`` says
    that its units must stay. ``zeros_count`` says that a unit that is zero changes the result, as in a mean or a
    maximum across units.
    """

    op: str
    like: str = ""
    rule: OpFunction | None = None
    zeros_count: bool = False


OpFunction = Callable[[Any, dict[str, Any], Sequence[Tensor]], Sequence[Sequence[Any]]]
Rule = LayerRule | OpRule
