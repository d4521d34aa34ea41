"""What becomes of a gradient between the backward pass that makes it and the step that uses it.

Users unscale gradients, clip them, clear them. Whatever is read on the way back, before all that, must go the same way.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GradProbe:
    """Watches the gradient of one weight, by its norm; until :meth:`remove`.

    What a backward pass makes is kept as it is: in a distributed run the gradient becomes the mean over the ranks after
    that, and what the user has done to it is known from the mean of what was made.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        self._weight = weight
        self._made: Tensor | None = None  # the gradient when the last backward pass was through with it
        self._handle = weight.register_post_accumulate_grad_hook(self._see)  # type: ignore[no-untyped-call]

    def _see(self, weight: Tensor) -> None:
        assert weight.grad is not None
        self._made = weight.grad.detach().clone()

    def still(self, known: Tensor) -> Tensor | None:
        """What earlier backward passes gave, if the gradients they made are still there; at the start of the next."""
        made, self._made = self._made, None
        if made is None:  # no pass has ended since
            return known
        gradient = self._weight.grad
        return None if gradient is None else torch.where(_norm(gradient) > 0, known, 0.0)

    def taken(self) -> Tensor | None:
        """What the last backward pass made, once."""
        made, self._made = self._made, None
        return made

    def factor(self, made: Tensor | None) -> Tensor | float:
        """What the gradient was multiplied by since it was ``made``."""
        if made is None:
            return 1.0
        gradient, norm = self._weight.grad, _norm(made)
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
