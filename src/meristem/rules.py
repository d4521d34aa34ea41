"""Rules for layers, operations and optimizers of your own, to pass to ``Grower(..., rules=[...])``.

Nearly everything is learnt from the operations that a model runs. A :class:`LayerRule` is needed only where a layer
remembers a size that no operation shows, or demands an equality that only its code knows; an :class:`OpRule` where an
operation is not one of torch's, or is followed too cautiously. Both are given to ``trace(..., rules=[...])``, too. An
:class:`OptimizerRule` says what an optimizer keeps for every parameter; ``Live(..., rules=[...])`` takes it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch import Tensor, nn, optim


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


class StateKind(Enum):
    """What an entry of an optimizer's state is to its parameter, and so what becomes of it when that is resized."""

    SCALAR = "not of the parameter's shape, such as a counter of steps: kept as it is"
    FIRST_MOMENT = "element by element, zero is neutral: a momentum, also one that is orthogonalised when it is used"
    SECOND_MOMENT = "element by element, a scale that divides: fresh units start with the mean over the live tensor"
    ROW_MOMENT = "a second moment that is averaged over the last dimension"
    COLUMN_MOMENT = "a second moment that is averaged over the last dimension but one"
    WEIGHTS = "element by element, another version of the weights: fresh units start with the weights themselves"


@dataclass(frozen=True)
class OptimizerRule:
    """What an optimizer keeps for every parameter: the name of each entry of its state, and of which kind it is.

    ``optimizer`` is its class, or the name of the class (``"Lion"``, ``"package.module.Lion"``). Entries that are no
    tensors, or tensors of one number, need no mention; any other that is not named is refused before a parameter is
    resized.

    >>> OptimizerRule(optim.SGD, {"momentum_buffer": StateKind.FIRST_MOMENT}).fits(optim.SGD)
    True
    """

    optimizer: type[optim.Optimizer] | str
    state: Mapping[str, StateKind]

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.optimizer.rpartition(".")[2] if isinstance(self.optimizer, str) else self.optimizer.__name__

    def fits(self, kind: type[optim.Optimizer]) -> bool:
        """Tell whether this is the rule of an optimizer of exactly this class; a child class may keep other state."""
        if not isinstance(self.optimizer, str):
            return kind is self.optimizer
        return self.optimizer in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")
