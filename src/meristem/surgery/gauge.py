"""What becomes of a gradient between the backward pass that makes it and the step that uses it.

Users unscale gradients, clip them, clear them. Whatever is read on the way back, before all that, must go the same way.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Gauge:
    """Watches the gradient of one weight, by its norm; until :meth:`remove`."""

    def __init__(self, weight: nn.Parameter) -> None:
        self._weight = weight
        self._made: Tensor | None = None  # the norm when the last backward pass was through with it
        self._handle = weight.register_post_accumulate_grad_hook(self._see)  # type: ignore[no-untyped-call]

    def _see(self, weight: Tensor) -> None:
        self._made = _norm(weight.grad)

    def still(self, known: Tensor) -> Tensor | None:
        """What earlier backward passes gave, if the gradients they made are still there; at the start of the next."""
        made, self._made = self._made, None
        if made is None:  # no pass has ended since
            return known
        gradient = self._weight.grad
        return None if gradient is None else torch.where(_norm(gradient) > 0, known, 0.0)

    def factor(self) -> Tensor | float:
        """What the gradient was multiplied by since it was made."""
        made, self._made = self._made, None
        if made is None:
            return 1.0
        gradient = self._weight.grad
        measured = (made > 0) & made.isfinite()  # an overflow cannot be measured, but nor is it stepped with
        return 0.0 if gradient is None else torch.where(measured, _norm(gradient) / made, 1.0)

    def remove(self) -> None:
        self._handle.remove()


def _norm(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    norm: Tensor = torch.linalg.vector_norm(gradient.detach(), dtype=torch.promote_types(gradient.dtype, torch.float32))
    return norm
