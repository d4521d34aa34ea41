"""The ledger: what training has really executed, beside what the dense run would have for the same steps."""

from __future__ import annotations

from dataclasses import dataclass

BACKWARD_AND_FORWARD = 3  # a training step costs three forward passes: one forward, two for backward


@dataclass
class Ledger:
    """Multiply-adds of training. ``dense_macs`` is one forward pass of the full network for one step's samples."""

    dense_macs: float
    spent: float = 0.0
    dense_spent: float = 0.0
    steps: int = 0
    other_spent: float = 0.0  # stages before or after this run that it needed: search, pre-training, fine-tuning

    def train(self, steps: int, macs_frac: float) -> None:
        """``steps`` training steps with a network of ``macs_frac`` of the dense macs."""
        self.steps += steps
        self.spent += BACKWARD_AND_FORWARD * steps * macs_frac * self.dense_macs
        self.dense_spent += BACKWARD_AND_FORWARD * steps * self.dense_macs

    @property
    def record(self) -> dict[str, float]:
        """As it stands in the history."""
        return {
            "spend_macs": self.spent,
            "dense_spend_macs": self.dense_spent,
            "spend_frac": self.spend_frac,
            "total_spend_frac": self.total_frac,
        }

    def evaluate(self, steps: int, macs_frac: float) -> None:
        """Forward passes that decided about structure."""
        self.spent += steps * macs_frac * self.dense_macs

    @property
    def spend_frac(self) -> float:
        """This run against the dense run for the same steps."""
        return self.spent / self.dense_spent if self.dense_spent else 0.0

    @property
    def total_frac(self) -> float:
        """The same with every other stage this run needed."""
        return (self.spent + self.other_spent) / self.dense_spent if self.dense_spent else 0.0
