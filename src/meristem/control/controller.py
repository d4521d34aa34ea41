"""Controllers: from scores and the planned cost to the units that shall live. They decide; they never act."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from meristem.control.draws import Draw, Independent, Ranked, sigmoid
from meristem.control.fit_budget import even, fit
from meristem.control.order import Standing, Value
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.space.arrays import BoolArray, FloatArray

_WIDEST = 2**20  # far above any layer, and small enough to count with


@dataclass(frozen=True)
class View:
    """What a decision may look at. ``limits`` is the planned cost of the next epoch, ``caps`` the budget, as shares."""

    scores: Mapping[str, FloatArray]
    beta: Mapping[str, FloatArray]
    live: Mapping[str, BoolArray]
    lived: Mapping[str, BoolArray]
    limits: Mapping[str, float]
    caps: Mapping[str, float]
    last: bool  # no decision comes after this one
    prices: Prices = field(repr=False)
    records: Sequence[Mapping[str, Any]] = field(default=(), repr=False)  # of the epochs so far

    @property
    def widths(self) -> dict[str, int]:
        return {name: int(mask.sum()) for name, mask in self.live.items()}


@dataclass(frozen=True)
class Decision:
    """The units that shall live, what was added to all scores, and the strength of the penalty from now on."""

    live: Mapping[str, BoolArray]
    push: float = 0.0
    strength: float = 0.0


class Controller(Protocol):
    @property
    def follows_plan(self) -> bool:
        """Whether no decision costs more than planned, as a spend budget needs."""
        ...

    def decide(self, view: View, rng: np.random.Generator) -> Decision: ...


@dataclass(frozen=True)
class Exact:
    """The planned cost is met at every epoch: by a uniform push on all scores, found by bisection (Eq. Exact).

    With ``value`` units compete by its preference, otherwise by score. ``draw`` proposes; what it proposes
    is trimmed and filled by preference until it stands at or just under the plan. ``align`` holds widths to multiples.
    """

    value: Value | None = None
    draw: Draw = Ranked()
    align: int = 1
    follows_plan: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.align <= _WIDEST:
            raise MeristemError(f"align must be a width, from 1 to {_WIDEST}, got {self.align}")

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        if isinstance(self.draw, Ranked):  # beta (s + push) > 0 where s > -push: the temperature does not matter
            return Decision(self._balanced(view) if self.value else self._fit(view, view.scores))
        scores, betas = view.scores, view.beta
        if self.value is not None:
            scores = self.value.preference(_standing(view, _unit_prices(view), 0.5))
            betas = {name: np.ones_like(beta) for name, beta in view.beta.items()}
        push = solve_push(view.prices, scores, betas, view.limits)
        chances = {name: sigmoid(betas[name] * (values + push)) for name, values in scores.items()}
        drawn = {name: self.draw(p, view.live[name], rng) for name, p in chances.items()}
        wish = {name: p + drawn[name] for name, p in chances.items()}  # first what was drawn, then by chance
        return Decision(self._fit(view, wish), push)

    def _fit(self, view: View, preference: Mapping[str, FloatArray]) -> dict[str, BoolArray]:
        return fit(view.prices, preference, view.limits, self.align)

    def _balanced(self, view: View) -> dict[str, BoolArray]:
        """Price units in parameters and in macs, so mixed that both costs stand at the same share of their plan.

        Priced in parameters alone, units that are cheap in parameters and dear in macs would win, and the other way
        round. A metric without a plan of its own is held to what it is when all groups grow in step.
        """
        assert self.value is not None
        unit_prices, wished = _unit_prices(view), _wished(view)
        best: tuple[float, dict[str, BoolArray]] | None = None
        low, high = _MIX_RANGE
        for _ in range(_MIXES):
            mix = (low + high) / 2
            live = self._fit(view, self.value.preference(_standing(view, unit_prices, mix)))
            shares = view.prices.shares({name: int(mask.sum()) for name, mask in live.items()})
            heavier = shares["macs"] / wished["macs"] - shares["params"] / wished["params"]
            if best is None or abs(heavier) < best[0]:
                best = abs(heavier), live
            low, high = (low, mix) if heavier > 0 else (mix, high)
        assert best is not None
        return best[1]


_MIXES = 8  # halvings of the mix of prices: about one unit
_MIX_RANGE = (-3.0, 4.0)  # beyond 0 and 1 a metric counts the wrong way round: some networks need that to be in balance


def _wished(view: View) -> dict[str, float]:
    """The limits, and for other metrics the cost of the network that meets them with the same share of every group."""
    alike = fit(view.prices, even(view.prices.space), view.limits)
    return {**view.prices.shares({name: int(mask.sum()) for name, mask in alike.items()}), **view.limits}


def _unit_prices(view: View) -> dict[str, dict[str, float]]:
    return view.prices.of_unit(view.widths, _wished(view))


def _standing(view: View, unit_prices: Mapping[str, Mapping[str, float]], mix: float) -> Standing:
    return Standing(view.scores, view.live, view.lived, _mixed(unit_prices, mix), view.prices.space.stages)


def _mixed(prices: Mapping[str, Mapping[str, float]], mix: float) -> dict[str, float]:
    """The price of a unit of each group: the geometric mean of its parameters and its macs, weighted by ``mix``."""
    return {group: price**mix * prices["macs"][group] ** (1 - mix) for group, price in prices["params"].items()}


_SATURATED = 16.0  # |beta s| from which on a sigmoid is 0 or 1


def solve_push(
    prices: Prices, scores: Mapping[str, FloatArray], betas: Mapping[str, FloatArray], limits: Mapping[str, float]
) -> float:
    """The number to add to all scores that puts the expected cost on the limits; it rises with the number."""

    def fits(push: float) -> bool:
        chances = {name: sigmoid(betas[name] * (values + push)) for name, values in scores.items()}
        widths = {name: max(float(prices.space.groups[name].min_units), float(p.sum())) for name, p in chances.items()}
        return prices.fits(widths, limits)

    # Beyond these every gate is shut or open. A wider bracket would let pushes add up where the plan is the full model.
    least_beta = min(float(beta.min()) for beta in betas.values())
    low = -max(float(values.max()) for values in scores.values()) - _SATURATED / least_beta
    high = -min(float(values.min()) for values in scores.values()) + _SATURATED / least_beta
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Feedback:
    """The paper's controller (Eq. 5): the penalty's strength follows the distance from the budget, draws are free.

    The distance is the largest over the metrics. The last draw is trimmed to the budget: a cap is a cap. ``deep_base``
    takes the place of ``base`` where blocks come and go, too; `Descent` has their share of the penalty.
    """

    base: float = 0.5
    deep_base: float = 1.0
    draw: Draw = Independent()
    follows_plan: bool = False

    def __post_init__(self) -> None:
        for name in ("base", "deep_base"):
            if not 0 <= getattr(self, name) < math.inf:
                raise MeristemError(f"{name} must be a number of at least 0, got {getattr(self, name)}")

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        chances = {name: sigmoid(view.beta[name] * scores) for name, scores in view.scores.items()}
        drawn = {name: self.draw(p, view.live[name], rng) for name, p in chances.items()}
        for name, mask in drawn.items():
            missing = view.prices.space.groups[name].min_units - int(mask.sum())
            if missing > 0:
                mask[np.argsort(np.where(mask, np.inf, -chances[name]), kind="stable")[:missing]] = True
        widths = {name: int(mask.sum()) for name, mask in drawn.items()}
        if view.last and not view.prices.fits(widths, view.caps):
            kept = {name: np.where(drawn[name], p, -np.inf) for name, p in chances.items()}
            drawn = fit(view.prices, kept, view.caps)
            widths = {name: int(mask.sum()) for name, mask in drawn.items()}
        above = max(view.prices.share(name, widths) - cap for name, cap in view.caps.items())
        base = self.deep_base if view.prices.space.stages else self.base
        return Decision(drawn, strength=base * above)


@dataclass(frozen=True)
class Keep:
    """Structure stays as it started: a network of fixed size behind the grower's face."""

    follows_plan: bool = True

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        return Decision(view.live)
