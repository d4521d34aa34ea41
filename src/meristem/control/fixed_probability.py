"""The paper's random baseline: the same draws, with a probability that is fixed instead of learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meristem.control.controller import Decision, Traits, View
from meristem.control.drawn_network import draw_network, land
from meristem.control.draws import DRAWS, Draw, Independent
from meristem.control.text_settings import choice
from meristem.cost.price import Prices


@dataclass(frozen=True)
class FixedProbability(Traits):
    """Every unit is drawn anew after each epoch, all with the one probability at which the expected cost is the budget.

    The last draw is trimmed to the budget and filled with what still fits, both by chance, so that what it is compared
    with is no larger.
    """

    draw: Draw = choice(Independent(), DRAWS)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        p = budget_probability(view.prices, view.caps)
        drawn = draw_network(view, {name: np.full(mask.shape, p) for name, mask in view.live.items()}, self.draw, rng)
        if view.last:
            drawn = land(view, drawn, {name: rng.random(mask.shape) for name, mask in drawn.items()}, fill=True)
        return Decision(drawn)


def budget_probability(prices: Prices, caps: Mapping[str, float]) -> float:
    """The probability at which a network of independently drawn units is expected to cost the budget, by bisection."""
    full, smallest = prices.space.full, prices.space.smallest
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        widths = {name: max(smallest[name], middle * full[name]) for name in full}
        low, high = (middle, high) if prices.fits(widths, caps) else (low, middle)
    return low
