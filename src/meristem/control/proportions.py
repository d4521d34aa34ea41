"""Proportions: how wide groups are in relation to one another before the task has said anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from meristem.control.cap_weights import weights_that_use_up
from meristem.control.controller import widths_of
from meristem.control.fit_budget import fit, in_proportion
from meristem.control.text_settings import number
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.space.space import Space


@dataclass(frozen=True)
class Proportions:
    """A group gets a share of its units in proportion to 1 / (cost of its layers) ** ``balance`` (Eq. Proportions).

    The cost of its layers is their cost in the full model, in what the budget names, over their number to the power
    ``reach``: 1 makes it the mean of the layers that make or read its units, more than 1 favours groups that many
    layers share, such as a residual stream. A ``balance`` of 0 gives every group the same share of its units; in a
    plain chain of layers 1/2 gives every layer about the same share of the budget; 1/3 is best where a layer's error
    falls as one over its share of units.
    """

    balance: float = number(1 / 3)
    reach: float = number(1.0)

    def __post_init__(self) -> None:
        for name in ("balance", "reach"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise MeristemError(f"{name} must be a number of at least 0, got {value}")

    def multipliers(self, prices: Prices, caps: Mapping[str, float]) -> dict[str, float]:
        """For every group the share of its units over that of the group with the largest share.

        Where blocks share the budget with units it is 1 for all groups: what widths cost then depends on how many
        blocks there are. With several caps the cost is their weighted sum, with weights at which all caps are used up.
        """
        if not self.balance or prices.space.stages:
            return dict.fromkeys(prices.space.groups, 1.0)
        costs = self._layer_costs(prices, caps)

        def shares(weights: Mapping[str, float]) -> dict[str, float]:
            return prices.shares(widths_of(fit(prices, in_proportion(prices.space, self._from(costs, weights)), caps)))

        return self._from(costs, weights_that_use_up(caps, shares))

    def _from(self, costs: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]) -> dict[str, float]:
        groups = next(iter(costs.values()))
        shares = {g: sum(weight * costs[name][g] for name, weight in weights.items()) ** -self.balance for g in groups}
        largest = max(shares.values(), default=1.0)
        return {group: share / largest for group, share in shares.items()}

    def _layer_costs(self, prices: Prices, caps: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """For every metric what the layers of a group cost in the full model, over their number ** ``reach``."""
        space = prices.space
        layers = _layers(space)
        return {
            name: {g: of_unit[g] * space.full[g] / max(1, layers[g]) ** self.reach for g in space.groups}
            for name, of_unit in prices.of_unit(space.full, caps).items()
        }


def _layers(space: Space) -> dict[str, int]:
    """How often the units of each group occur as rows or columns of a weight."""
    counts = dict.fromkeys(space.groups, 0)
    for tensor in space.tensors.values():
        if tensor.is_parameter and len(tensor.shape) > 1:
            for axis in space.axes(tensor.name):
                for part in space.unit_parts(axis):
                    counts[part.group] += 1
    return counts


EVEN = Proportions(balance=0.0)  # every group has the same share of its units
