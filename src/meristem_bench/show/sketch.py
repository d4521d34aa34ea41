"""What there is to be drawn of a network: as it is now, and what the last step changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.cost.price import Prices
from meristem.grower import Grower
from meristem.history import live_blocks
from meristem.space.arrays import BoolArray
from meristem_bench.runs.metric import Metric
from meristem_bench.show.picture import Row
from meristem_bench.show.tables import blocks_text, percent


class Sketch:
    """Rows and numbers of a grower's network; costs are those of the network that is shown, metrics the last ones."""

    def __init__(self, grower: Grower) -> None:
        self._grower, self._prices = grower, Prices(grower.space)
        self._measured: list[str] = []
        self._before = grower.live.active
        self._look()

    def step(self, record: Mapping[str, Any], headline: Metric) -> None:
        """An epoch is over and the next network is there."""
        metrics = record["metrics"]
        value = metrics.get(f"val_{headline.name}")
        shown = [] if value is None else [f"{headline.name} {headline.text(value)}"]
        stage = ["fine-tuning"] if record.get("fine_tuning") else []
        self._measured = [*shown, *stage, f"loss {metrics['train_loss']:.3f}", f"spend {percent(record['spend_frac'])}"]
        self._look()

    def _look(self) -> None:
        grower, now = self._grower, self._grower.live.active
        space, trajectory = grower.space, grower.trajectory
        self.rows = tuple(row(name, now[name], self._before[name]) for name in now if name not in space.blocks)
        self._before = now
        shares, planned = self._prices.shares(grower.widths), trajectory.at(grower.epoch)
        follows = grower.method.controller.follows_plan
        plans = {name: f"plan {percent(planned[name])}, " if follows else "" for name in trajectory.caps}
        costs = [
            f"{name} {percent(shares[name])} ({plans[name]}budget {percent(cap)})"
            for name, cap in trajectory.caps.items()
        ]
        width = sum(each.live for each in self.rows) / max(1, sum(each.full for each in self.rows))
        self.numbers = (*self._measured, *costs, f"width {percent(width)}", *self._blocks(now))

    def _blocks(self, now: Mapping[str, BoolArray]) -> list[str]:
        stages = self._grower.space.stages
        if not stages:
            return []
        full = {stage.name: stage.fixed + len(stage.blocks) for stage in stages}
        return [f"blocks {blocks_text(live_blocks(self._grower.space, now))} of {blocks_text(full)}"]


def row(name: str, now: BoolArray, before: BoolArray) -> Row:
    return Row(name, int(now.sum()), len(now), int((now & ~before).sum()), int((before & ~now).sum()))
