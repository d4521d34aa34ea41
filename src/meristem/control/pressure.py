"""Pressure: what acts on the weights at every optimizer step, beside the task's gradient, until the last decision.

A policy is frozen data; `gating/gating.py` calls it around the user's optimizer step.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class UnitWeights(Protocol):
    """The weights of all live units, unit by unit. A weight between two units belongs to both."""

    def power_sums(self, p: float) -> Tensor:
        """The sum of |w|^p over the weights of every unit, in one flat tensor."""
        ...

    def add_decay(self, factors: Tensor) -> None:
        """Add factor * w to the gradient of every weight, for each unit that it belongs to."""
        ...

    def zero_below(self, threshold: float) -> None:
        """Set weights of at most the threshold to zero."""
        ...


class Pressure(Protocol):
    """A rule that pulls weights somewhere; growing regularisation, a lasso or a barrier, say."""

    def before_step(self, weights: UnitWeights, grad_scale: Tensor | None) -> None:
        """Gradients are final and the optimizer is about to step; ``grad_scale`` is what they are multiplied with."""
        ...

    def after_step(self, weights: UnitWeights) -> None:
        """The optimizer has stepped."""
        ...
