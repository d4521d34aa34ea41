"""The exact controller: the planned cost is met at every epoch, to the unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meristem.control.cap_weights import weights_that_use_up
from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.draws import DRAWS, Draw, Ranked, sigmoid
from meristem.control.fit_budget import fit
from meristem.control.order import Order, UnitStatus
from meristem.control.text_settings import choice, whole_number
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.space.arrays import BoolArray, FloatArray

_WIDEST = 2**20  # far above any layer, and small enough to count with
_SATURATED = 16.0  # |beta s| from which on a sigmoid is 0 or 1


@dataclass(frozen=True)
class Exact(Traits):
    """The planned cost is met at every epoch: by a uniform push on all scores, found by bisection (Eq. Exact).

    With ``order`` units compete by its preference, otherwise by score. ``draw`` proposes; what it proposes
    is trimmed and filled by preference until it stands at or just under the plan. ``align`` holds widths to multiples.
    """

    order: Order | None = None
    draw: Draw = choice(Ranked(), DRAWS)
    align: int = whole_number(1)

    follows_plan = True
    uses_schedule = True

    def __post_init__(self) -> None:
        if not 1 <= self.align <= _WIDEST:
            raise MeristemError(f"align must be a width, from 1 to {_WIDEST}, got {self.align}")

    @property
    def keeps_proportions(self) -> bool:
        return self.order is not None and self.order.keeps_proportions

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        if self.draw == Ranked():  # beta (s + push) > 0 where s > -push: the temperature does not matter
            return Decision(self._best(view))
        scores, betas = view.scores, view.beta
        if self.order is not None:
            unit_prices = view.prices.of_unit(view.widths, view.limits)
            scores = self.order.preference(_status(view, unit_prices, dict.fromkeys(view.limits, 1.0)))
            betas = {name: np.ones_like(beta) for name, beta in view.beta.items()}
        push = solve_push(view.prices, scores, betas, view.limits)
        chances = {name: sigmoid(betas[name] * (values + push)) for name, values in scores.items()}
        drawn = {name: self.draw(p, view.live[name], rng) for name, p in chances.items()}
        preference = {name: p + drawn[name] for name, p in chances.items()}  # first what was drawn, then by chance
        return Decision(self._fit(view, preference), push)

    def _best(self, view: View) -> dict[str, BoolArray]:
        """The units that are preferred to all others and fit the plan."""
        if self.order is None:
            return self._fit(view, view.scores)
        if self.order.uses_prices:
            return self._best_for_price(view, self.order)
        return self._fit(view, self.order.preference(_status(view, {}, {})))

    def _fit(self, view: View, preference: Mapping[str, FloatArray]) -> dict[str, BoolArray]:
        return fit(view.prices, preference, view.limits, self.align)

    def _best_for_price(self, view: View, order: Order) -> dict[str, BoolArray]:
        """The same where units compete by what they are worth for their price.

        A unit is priced in what the plan caps, and in nothing else. With several caps the price is their weighted sum,
        with weights at which all caps are used up.
        """
        unit_prices = view.prices.of_unit(view.widths, view.limits)

        def best(weights: Mapping[str, float]) -> dict[str, BoolArray]:
            return self._fit(view, order.preference(_status(view, unit_prices, weights)))

        weights = weights_that_use_up(view.limits, lambda weights: view.prices.shares(widths_of(best(weights))))
        return best(weights)


def _status(view: View, unit_prices: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]) -> UnitStatus:
    """The price of a unit of each group is the weighted sum of its prices in the metrics that are capped."""
    prices = {
        group: sum(weight * unit_prices[name][group] for name, weight in weights.items())
        for group in view.prices.space.groups
    }
    space = view.prices.space
    stages, factors, ungated = space.stages, space.factors, space.ungated_groups
    return UnitStatus(view.scores, view.live, view.lived, prices, stages, view.multipliers, factors, ungated)


def solve_push(
    prices: Prices, scores: Mapping[str, FloatArray], betas: Mapping[str, FloatArray], limits: Mapping[str, float]
) -> float:
    """The number to add to all scores that puts the expected cost on the limits; it rises with the number."""

    def fits(push: float) -> bool:
        chances = {name: sigmoid(betas[name] * (values + push)) for name, values in scores.items()}
        widths = {name: max(float(prices.space.groups[name].min_units), float(p.sum())) for name, p in chances.items()}
        return prices.fits(widths, limits)

    # Beyond these every gate is shut or open. A wider bracket would let pushes add up where the plan is the full model.
    smallest_beta = min(float(beta.min()) for beta in betas.values())
    low = -max(float(values.max()) for values in scores.values()) - _SATURATED / smallest_beta
    high = -min(float(values.min()) for values in scores.values()) + _SATURATED / smallest_beta
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
