"""Tasks: what a model's outputs are worth. Data gives batches, a task gives the loss and the numbers people look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Task(Protocol):
    """A loss, and metrics made of sums.

    ``tally`` gives a vector that can be added up over batches; ``metrics`` reads the sum. So a metric that is no mean
    over samples (intersection over union, perplexity) is exact whatever the batches are.
    """

    @property
    def headline(self) -> str:
        """The metric that is shown; a fraction, more is better."""
        ...

    def loss(self, outputs: Any, targets: Tensor) -> Tensor: ...

    def tally(self, outputs: Any, targets: Tensor) -> Tensor: ...

    def metrics(self, tally: Tensor) -> dict[str, float]: ...


@dataclass(frozen=True)
class Classification:
    """One class per sample: cross entropy, and the share of samples that are classified right."""

    label_smoothing: float = 0.0
    headline: str = "accuracy"

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, label_smoothing=self.label_smoothing)

    def tally(self, outputs: Any, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(outputs.float(), targets, reduction="sum")
        right = (outputs.argmax(1) == targets).sum()
        return torch.stack([loss, right.to(loss), loss.new_tensor(len(targets))]).double()

    def metrics(self, tally: Tensor) -> dict[str, float]:
        loss, right, count = tally.tolist()
        return {"loss": loss / count, "accuracy": right / count}
