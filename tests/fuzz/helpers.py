"""What fuzzed modules may use beside torch: functions with a backward pass of their own, hooks, and the like."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint


class SignThrough(torch.autograd.Function):
    """The sign, with the gradient of the identity within bounds."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0).to(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return gradient * (x.abs() <= 1)


class SwishWithLittleMemory(torch.autograd.Function):
    """x sigmoid(x), of which only x is kept."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        s = torch.sigmoid(x)
        return gradient * (s + x * s * (1 - s))


class OwnSoftmax(torch.autograd.Function):
    """A softmax along the last dimension."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        y = x.softmax(-1)
        context.save_for_backward(y)
        return y

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (y,) = context.saved_tensors
        return y * (gradient - (gradient * y).sum(-1, keepdim=True))


def doubled(module: Any, inputs: Any, output: Tensor) -> Tensor:
    return 2 * output


def negated(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(-x for x in inputs)


HELPERS = {
    "SignThrough": SignThrough,
    "SwishWithLittleMemory": SwishWithLittleMemory,
    "OwnSoftmax": OwnSoftmax,
    "checkpoint": checkpoint,
    "doubled": doubled,
    "negated": negated,
    "prune": prune,
}
