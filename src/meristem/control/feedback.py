"""The paper's controller: the width penalty follows the distance from the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.drawn_network import draw_network, land
from meristem.control.draws import DRAWS, Draw, Independent, sigmoid
from meristem.control.text_settings import choice, flag, number
from meristem.cost.price import Prices
from meristem.errors import MeristemError


@dataclass(frozen=True)
class Feedback(Traits):
    """The penalty's strength follows the distance from the budget, draws are free (Eq. Feedback).

    The distance is the largest over the metrics. The last draw is trimmed to the budget: a cap is a cap. ``deep_base``
    takes the place of ``base`` where blocks come and go, too; `TrainedGates` has their share of the penalty. With
    ``steady`` the distance is divided by that of the first network and held to [-1, 1], so that the strength does not
    depend on the budget, and the last draw is filled with what still fits.
    """

    base: float = number(0.5)
    deep_base: float = number(1.0)
    draw: Draw = choice(Independent(), DRAWS)
    steady: bool = flag(False)

    def __post_init__(self) -> None:
        for name in ("base", "deep_base"):
            if not 0 <= getattr(self, name) < math.inf:
                raise MeristemError(f"{name} must be a number of at least 0, got {getattr(self, name)}")

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        probabilities = {name: sigmoid(view.beta[name] * scores) for name, scores in view.scores.items()}
        drawn = draw_network(view, probabilities, self.draw, rng)
        if view.last:
            drawn = land(view, drawn, probabilities, fill=self.steady)
        return Decision(drawn, strength=self.strength(view.prices, widths_of(drawn), view.caps, view.first_widths))

    def strength(
        self, prices: Prices, widths: Mapping[str, int], caps: Mapping[str, float], first: Mapping[str, int]
    ) -> float:
        """The penalty's lambda for a network of these widths."""
        base = self.deep_base if prices.space.stages else self.base
        above = {name: prices.share(name, widths) - cap for name, cap in caps.items()}
        if not self.steady:
            return base * max(above.values())
        from_start = {name: max(cap - prices.share(name, first), 1e-12) for name, cap in caps.items()}
        return base * float(np.clip(max(above[name] / from_start[name] for name in caps), -1.0, 1.0))
