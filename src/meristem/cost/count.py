"""Parameters and multiply-adds as closed forms of the widths. No model is needed, and widths may be fractional."""

from __future__ import annotations

from collections.abc import Mapping

from meristem.space.space import Cost, Space


def count_params(space: Space, widths: Mapping[str, float] | None = None) -> float:
    """How many parameters the model has at ``widths`` (default: the full ones); shared parameters count once."""
    widths = space.full if widths is None else widths
    total = 0.0
    for tensor in space.tensors.values():
        if tensor.is_parameter:
            size = 1.0
            for axis in space.axes(tensor.name):
                size *= axis.count(widths)
            total += size
    return total


def count_macs(space: Space, widths: Mapping[str, float] | None = None) -> float:
    """Multiply-adds of one forward pass of the example inputs at ``widths`` (default: the full ones).

    Convolutions, linear layers, recurrent cells and attention count; norms, activations and pooling do not.
    """
    widths = space.full if widths is None else widths
    total = 0.0
    for term in space.terms:
        size = float(term.factor)
        for axis in term.axes:
            size *= axis.count(widths)
        total += size
    return total


def cost_at(space: Space, widths: Mapping[str, float]) -> Cost:
    """The cost of a network of the space, whole widths given."""
    return Cost(round(count_params(space, widths)), round(count_macs(space, widths)))
