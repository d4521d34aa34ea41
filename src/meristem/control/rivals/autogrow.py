"""AutoGrow (Wen et al., KDD 2020), the method that the paper compares with: blocks only, by a hand-made policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meristem.control.controller import Decision, Traits, View
from meristem.control.first_network import FewestBlocks
from meristem.control.method import Method
from meristem.control.proportions import EVEN
from meristem.control.schedule import Schedule
from meristem.control.scores import ConstantScores
from meristem.control.text_settings import number, whole_number, word
from meristem.errors import MeristemError
from meristem.space.space import Space, Stage
from meristem.surgery.fresh import RandomLastNorm


def autogrow() -> Method:
    """The comparison for growing depth: blocks of full width come in one at a time while that helps (AutoGrow)."""
    return Method(
        scores=ConstantScores(),
        controller=AutoGrow(),
        schedule=Schedule(start=0.0, grow_until=0.0, peak=1.0),
        proportions=EVEN,
        start=FewestBlocks(),
        fresh=RandomLastNorm(),
        opening=0.0,
    )


@dataclass(frozen=True)
class AutoGrow(Traits):
    """One block comes in every ``every`` epochs, stage by stage in turn; nothing ever goes.

    When the best ``metric`` so far has risen by less than ``threshold`` within ``patience`` (a share of the run; the
    authors take 100 epochs), the stage that grew last is finished. Their decisions look at the test set, ours at what
    was held out. Everything is read from the history, so that a resumed run decides the same.
    """

    metric: str = word("val_accuracy")
    every: int = whole_number(1)
    patience: float = number(0.25)
    threshold: float = number(0.0005)

    has_budget = False

    def __post_init__(self) -> None:
        if self.every < 1:
            raise MeristemError(f"every must be a number of epochs of at least 1, got {self.every}")
        if not 0 <= self.patience <= 1:
            raise MeristemError(f"patience must be a share of the run, got {self.patience}")
        if not self.threshold >= 0:
            raise MeristemError(f"threshold must be a number of at least 0, got {self.threshold}")

    def check(self, space: Space) -> None:
        """Refuse a space in which it has nothing to do."""
        if not space.stages:
            raise MeristemError("autogrow grows blocks, but this space has none: trace the model with depth=True")

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        space = view.prices.space
        live = {name: mask.copy() for name, mask in view.live.items()}
        stage = self.next_stage(space.stages, view.records)
        block = next((block for block in stage.blocks if not live[block.group][0]), None) if stage else None
        if block is None or not view.prices.fits({**view.widths, block.group: 1}, view.caps):
            return Decision(live)
        live[block.group][0] = True
        return Decision(live)

    def next_stage(self, stages: Sequence[Stage], records: Sequence[Mapping[str, Any]]) -> Stage | None:
        """The stage that gets a block after the last of the recorded epochs, or None."""
        results = [self._result(record) for record in records]
        epochs = round(records[-1]["epoch"] / records[-1]["progress"])
        patience = max(1, round(self.patience * epochs))
        finished: set[str] = set()
        turn, last, chosen = 0, None, None
        for epoch in range(1, len(records) + 1):
            if epoch > patience and max(results[:epoch]) - max(results[: epoch - patience]) < self.threshold:
                finished |= {last} if last is not None else set()
            chosen = None
            if epoch % self.every == 0:
                blocks = records[epoch - 1]["blocks"]
                for offset in range(len(stages)):
                    stage = stages[(turn + offset) % len(stages)]
                    full = blocks[stage.name] >= stage.fixed + len(stage.blocks)
                    if stage.name not in finished and not full:
                        chosen, last, turn = stage, stage.name, turn + offset + 1
                        break
        return chosen

    def _result(self, record: Mapping[str, Any]) -> float:
        value = record["metrics"].get(self.metric)
        if value is None:
            raise MeristemError(
                f"autogrow decides by {self.metric}, which this epoch did not report: grower.step({self.metric}=...); "
                f"on the command line hold out some training samples, e.g. --set held_out=5000"
            )
        return float(value)
