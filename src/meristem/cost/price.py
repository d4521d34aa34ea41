"""What networks and single units cost, as shares of the dense network, for the metrics a budget can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meristem.cost.count import count_macs, count_params
from meristem.space.space import Space

Widths = Mapping[str, float]

METRICS: Mapping[str, Callable[[Space, Widths], float]] = {"params": count_params, "macs": count_macs}


class Prices:
    """Costs of one space. ``limits`` and results are shares of the dense cost, by metric."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.dense = {name: max(count(space, space.full), 1.0) for name, count in METRICS.items()}
        self.smallest = self.shares(space.smallest)

    def share(self, metric: str, widths: Widths) -> float:
        return METRICS[metric](self.space, widths) / self.dense[metric]

    def shares(self, widths: Widths) -> dict[str, float]:
        return {name: self.share(name, widths) for name in METRICS}

    def fits(self, widths: Widths, limits: Mapping[str, float]) -> bool:
        """Whether no metric is above its limit; a rounding error is not above."""
        return all(self.share(name, widths) <= limit * (1 + 1e-12) for name, limit in limits.items())

    def of_unit(self, widths: Widths, limits: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """For each metric the price of one more unit of each group, as a share of what is allowed."""
        return {name: self._of_unit(name, widths, limit) for name, limit in limits.items()}

    def _of_unit(self, metric: str, widths: Widths, limit: float) -> dict[str, float]:
        prices = {}
        for group in self.space.groups:
            less = {**widths, group: max(0.0, widths[group] - 0.5)}
            more = {**widths, group: less[group] + 1.0}
            prices[group] = max((self.share(metric, more) - self.share(metric, less)) / limit, 1e-12)
        return prices
