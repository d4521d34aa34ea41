"""A note on a parameter that it is smaller than in the full model; what is copied from it, an export, has none."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

_NOTE = "_smaller_than_in_the_full_model"


def resized_parameter(values: Tensor, trained: bool, full: Sequence[int]) -> nn.Parameter:
    """A parameter of a live network, which has the shape ``full`` in the full model."""
    parameter = nn.Parameter(values, requires_grad=trained)
    if tuple(values.shape) != tuple(full):
        setattr(parameter, _NOTE, True)
    return parameter


def is_resized(parameter: nn.Parameter) -> bool:
    """Whether a live network has this parameter, smaller than in the full model."""
    return hasattr(parameter, _NOTE)
