"""The exact controller: the planned cost is met at every epoch, to the unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.draws import DRAWS, Draw, Ranked, sigmoid
from meristem.control.fit_budget import even, fit
from meristem.control.order import Order, UnitStatus
from meristem.control.text_settings import choice, whole_number
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.space.arrays import BoolArray, FloatArray

_WIDEST = 2**20  # far above any layer, and small enough to count with
_MIXES = 8  # halvings of the mix of prices: about one unit
_MIX_RANGE = (-3.0, 4.0)  # beyond 0 and 1 a metric counts the wrong way round: some networks need that to be in balance
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

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        if self.draw == Ranked():  # beta (s + push) > 0 where s > -push: the temperature does not matter
            return Decision(self._best(view))
        scores, betas = view.scores, view.beta
        if self.order is not None:
            scores = self.order.preference(_status(view, _unit_prices(view), 0.5))
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
            return self._balanced(view, self.order)
        unpriced = UnitStatus(view.scores, view.live, view.lived, {}, view.prices.space.stages)
        return self._fit(view, self.order.preference(unpriced))

    def _fit(self, view: View, preference: Mapping[str, FloatArray]) -> dict[str, BoolArray]:
        return fit(view.prices, preference, view.limits, self.align)

    def _balanced(self, view: View, order: Order) -> dict[str, BoolArray]:
        """Price units in parameters and in macs, so mixed that both costs stand at the same share of their plan.

        Priced in parameters alone, units that are cheap in parameters and dear in macs would win, and the other way
        round. A metric without a plan of its own is held to what it is when all groups grow in step.
        """
        unit_prices, wanted = _unit_prices(view), _wanted_shares(view)
        best: tuple[float, dict[str, BoolArray]] | None = None
        low, high = _MIX_RANGE
        for _ in range(_MIXES):
            mix = (low + high) / 2
            live = self._fit(view, order.preference(_status(view, unit_prices, mix)))
            shares = view.prices.shares(widths_of(live))
            heavier = shares["macs"] / wanted["macs"] - shares["params"] / wanted["params"]
            if best is None or abs(heavier) < best[0]:
                best = abs(heavier), live
            low, high = (low, mix) if heavier > 0 else (mix, high)
        assert best is not None
        return best[1]


def _wanted_shares(view: View) -> dict[str, float]:
    """The limits, and for other metrics the cost of the network that meets them with the same share of every group."""
    in_step = fit(view.prices, even(view.prices.space), view.limits)
    return {**view.prices.shares(widths_of(in_step)), **view.limits}


def _unit_prices(view: View) -> dict[str, dict[str, float]]:
    return view.prices.of_unit(view.widths, _wanted_shares(view))


def _status(view: View, unit_prices: Mapping[str, Mapping[str, float]], mix: float) -> UnitStatus:
    return UnitStatus(view.scores, view.live, view.lived, _mixed(unit_prices, mix), view.prices.space.stages)


def _mixed(prices: Mapping[str, Mapping[str, float]], mix: float) -> dict[str, float]:
    """The price of a unit of each group: the geometric mean of its parameters and its macs, weighted by ``mix``."""
    return {group: price**mix * prices["macs"][group] ** (1 - mix) for group, price in prices["params"].items()}


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
