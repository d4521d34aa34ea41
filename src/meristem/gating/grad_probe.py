"""What happens to a gradient between the backward pass that makes it and the optimizer step that uses it.

Users unscale gradients, clip them, clear them. What is read during the backward pass must be scaled in the same way.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GradProbe:
    """Watches the gradient of one weight, by its norm; until :meth:`remove`.

    The gradient that a backward pass leaves is copied at once: in a distributed run it becomes the mean over the ranks
    after that, and what the user has done to it follows from the mean of the copies.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        self._weight = weight
        self._copy: Tensor | None = None  # of the gradient, as the last backward pass left it
        self._handle = weight.register_post_accumulate_grad_hook(self._see)  # type: ignore[no-untyped-call]

    def _see(self, weight: Tensor) -> None:
        assert weight.grad is not None
        self._copy = weight.grad.detach().clone()

    def surviving(self, pull: Tensor) -> Tensor | None:
        """The pull of earlier backward passes if their gradients are still there; asked when the next one begins."""
        copied, self._copy = self._copy, None
        if copied is None:  # no pass has ended since
            return pull
        gradient = self._weight.grad
        return None if gradient is None else torch.where(_norm(gradient) > 0, pull, 0.0)

    def take_gradient(self) -> Tensor | None:
        """The gradient that the last backward pass left; None if there was none since this was last asked."""
        copied, self._copy = self._copy, None
        return copied

    def factor(self, before: Tensor | None) -> Tensor | float:
        """What the gradient has been multiplied by since it was ``before``."""
        if before is None:
            return 1.0
        gradient, norm = self._weight.grad, _norm(before)
        measured = (norm > 0) & norm.isfinite()  # an overflow cannot be measured, but nor is it stepped with
        return 0.0 if gradient is None else torch.where(measured, _norm(gradient) / norm, 1.0)

    @property
    def shape(self) -> torch.Size:
        """Of what it watches."""
        return self._weight.shape

    def remove(self) -> None:
        self._handle.remove()


def _norm(gradient: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(gradient.detach(), dtype=torch.promote_types(gradient.dtype, torch.float32))
    return norm
