"""The paper's controller: the width penalty follows the distance from the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.draws import DRAWS, Draw, Independent, sigmoid
from meristem.control.fit_budget import fit
from meristem.control.text_settings import choice, number
from meristem.errors import MeristemError


@dataclass(frozen=True)
class Feedback(Traits):
    """The penalty's strength follows the distance from the budget, draws are free (Eq. Feedback).

    The distance is the largest over the metrics. The last draw is trimmed to the budget: a cap is a cap. ``deep_base``
    takes the place of ``base`` where blocks come and go, too; `TrainedGates` has their share of the penalty.
    """

    base: float = number(0.5)
    deep_base: float = number(1.0)
    draw: Draw = choice(Independent(), DRAWS)

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
        if view.last and not view.prices.fits(widths_of(drawn), view.caps):
            kept = {name: np.where(drawn[name], p, -np.inf) for name, p in chances.items()}
            drawn = fit(view.prices, kept, view.caps)
        widths = widths_of(drawn)
        above = max(view.prices.share(name, widths) - cap for name, cap in view.caps.items())
        base = self.deep_base if view.prices.space.stages else self.base
        return Decision(drawn, strength=base * above)
