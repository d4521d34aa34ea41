"""What is shown of a grower: its network as it is now, what the last step changed, and the numbers of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.cost.price import Prices
from meristem.grower import Grower
from meristem.history import live_blocks
from meristem.space.arrays import BoolArray
from meristem_bench.runs.task_metric import TaskMetric
from meristem_bench.show.formatting import blocks_text, percent
from meristem_bench.show.width_bars import WidthRow


class GrowerView:
    """Rows and numbers of a grower's network: the costs of the network that is shown, the last metrics measured."""

    def __init__(self, grower: Grower) -> None:
        self._grower, self._prices = grower, Prices(grower.space)
        self._last_metrics: list[str] = []
        self._before = grower.live.active
        self._refresh()

    def update(self, record: Mapping[str, Any], headline: TaskMetric) -> None:
        """Take in the record of an epoch, after which the grower holds the next network."""
        metrics = record["metrics"]
        value = metrics.get(f"val_{headline.name}")
        score = [] if value is None else [f"{headline.name} {headline.text(value)}"]
        stage = ["fine-tuning"] if record.get("fine_tuning") else []
        loss, spend = f"loss {metrics['train_loss']:.3f}", f"spend {percent(record['spend_frac'])}"
        self._last_metrics = [*score, *stage, loss, spend]
        self._refresh()

    def _refresh(self) -> None:
        grower, now = self._grower, self._grower.live.active
        space, trajectory = grower.space, grower.trajectory
        self.rows = tuple(width_row(name, now[name], self._before[name]) for name in now if name not in space.blocks)
        self._before = now
        shares, planned = self._prices.shares(grower.widths), trajectory.at(grower.epoch)
        follows = grower.method.controller.follows_plan
        plans = {name: f"plan {percent(planned[name])}, " if follows else "" for name in trajectory.caps}
        costs = [
            f"{name} {percent(shares[name])} ({plans[name]}budget {percent(cap)})"
            for name, cap in trajectory.caps.items()
        ]
        width = sum(each.live for each in self.rows) / max(1, sum(each.full for each in self.rows))
        self.numbers = (*self._last_metrics, *costs, f"width {percent(width)}", *self._blocks(now))

    def _blocks(self, now: Mapping[str, BoolArray]) -> list[str]:
        stages = self._grower.space.stages
        if not stages:
            return []
        full = {stage.name: stage.fixed + len(stage.blocks) for stage in stages}
        return [f"blocks {blocks_text(live_blocks(self._grower.space, now))} of {blocks_text(full)}"]


def width_row(name: str, now: BoolArray, before: BoolArray) -> WidthRow:
    return WidthRow(name, int(now.sum()), len(now), int((now & ~before).sum()), int((before & ~now).sum()))
