"""The ledger: what training has cost so far, stage by stage, beside what the dense run costs for the same steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FORWARD_AND_BACKWARD = 3  # a training step costs three forward passes: one forward, two for backward

# Stages that runs have. A method may name others: a stage is a key of `Ledger.by_stage`, nothing more. What a teacher
# computes while another stage is under way has a key of its own.
PRE_TRAIN, SEARCH, PRUNE, GROW, FINE_TUNE = "pre-train", "search", "prune", "grow", "fine-tune"
TEACH = "teach"


@dataclass(frozen=True)
class Ledger:
    """Multiply-adds of training, as a value: training and evaluating give a new ledger.

    ``dense_macs`` is one forward pass of the full network over the samples of one step. ``other_spent`` is the training
    cost of other runs that this one needs, e.g. the one that has found its widths.

    >>> ledger = Ledger(100.0).after_training(10, 0.5).after_training(10, 0.1, FINE_TUNE)
    >>> ledger.by_stage, ledger.spend_frac
    ({'grow': 1500.0, 'fine-tune': 300.0}, 0.3)
    """

    dense_macs: float
    spent: float = 0.0
    dense_spent: float = 0.0
    steps: int = 0
    other_spent: float = 0.0
    by_stage: Mapping[str, float] = field(default_factory=dict)

    def after_training(self, steps: int, macs_frac: float, stage: str = GROW) -> Ledger:
        """Return the ledger after ``steps`` training steps of a network of ``macs_frac`` of the dense macs."""
        ledger = self._with_cost(FORWARD_AND_BACKWARD * steps * macs_frac * self.dense_macs, stage)
        dense_spent = self.dense_spent + FORWARD_AND_BACKWARD * steps * self.dense_macs
        return replace(ledger, steps=self.steps + steps, dense_spent=dense_spent)

    def after_evaluating(self, steps: float, macs_frac: float, stage: str = SEARCH) -> Ledger:
        """Return the ledger after ``steps`` forward passes beside those of training; the dense run needs none.

        They decided about structure, or were a teacher's. A short training that tries a network out counts as
        ``FORWARD_AND_BACKWARD`` of them.
        """
        return self._with_cost(steps * macs_frac * self.dense_macs, stage)

    def with_other_runs(self, spent: float) -> Ledger:
        """Return the ledger of a run that needs other runs, which have cost ``spent`` macs in all."""
        return replace(self, other_spent=spent)

    def _with_cost(self, macs: float, stage: str) -> Ledger:
        by_stage = {**self.by_stage, stage: self.by_stage.get(stage, 0.0) + macs}
        return replace(self, spent=self.spent + macs, by_stage=by_stage)

    @property
    def spend_frac(self) -> float:
        """The cost of this run as a share of that of the dense run for the same steps."""
        return self.spent / self.dense_spent if self.dense_spent else 0.0

    @property
    def total_frac(self) -> float:
        """The same with the cost of the other runs that this one needs."""
        return (self.spent + self.other_spent) / self.dense_spent if self.dense_spent else 0.0

    @property
    def record(self) -> dict[str, Any]:
        """What the record of an epoch holds of it."""
        return {
            "spend_macs": self.spent,
            "dense_spend_macs": self.dense_spent,
            "spend_frac": self.spend_frac,
            "total_spend_frac": self.total_frac,
            "spend_by_stage": dict(self.by_stage),
        }
