"""What networks and single units cost, as shares of the dense network, for every metric a budget can cap."""

from __future__ import annotations

from collections.abc import Mapping

from meristem.cost.metrics import METRICS, Widths
from meristem.space.space import Space


class Prices:
    """Costs of one space. ``limits`` and results are shares of the dense cost, by metric."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.dense = {name: max(metric.count(space, space.full), 1.0) for name, metric in METRICS.items()}
        self.smallest = self.shares(space.smallest)

    def share(self, metric: str, widths: Widths) -> float:
        """Return the cost of a network as a share of the dense one."""
        return METRICS[metric].count(self.space, widths) / self.dense[metric]

    def shares(self, widths: Widths) -> dict[str, float]:
        """Return the share of the dense cost in every metric."""
        return {name: self.share(name, widths) for name in METRICS}

    def fits(self, widths: Widths, limits: Mapping[str, float]) -> bool:
        """Tell whether no metric is above its limit; a rounding error is not above."""
        return all(self.share(name, widths) <= limit * (1 + 1e-12) for name, limit in limits.items())

    def of_unit(self, widths: Widths, limits: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Return for each metric the price of one more unit of each group, as a share of what is allowed."""
        return {name: self._unit_prices(name, widths, limit) for name, limit in limits.items()}

    def _unit_prices(self, metric: str, widths: Widths, limit: float) -> dict[str, float]:
        def share(widths: Widths) -> float:
            return self.share(metric, widths)

        unit_price = METRICS[metric].unit_price
        return {group: max(unit_price(share, widths, group) / limit, 1e-12) for group in self.space.groups}
