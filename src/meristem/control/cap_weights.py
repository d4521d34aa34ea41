"""How much each of several caps weighs in the price of a unit, so that all of them are used up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_ROUNDS = (16.0, 16.0, 12.0, 8.0, 6.0, 4.0, 3.0)  # how strongly unused caps lose weight, round by round


def weights_that_use_up(
    limits: Mapping[str, float], shares: Callable[[Mapping[str, float]], Mapping[str, float]]
) -> dict[str, float]:
    """The weights, by metric, at which a network uses up all limits, as far as there are such weights.

    ``shares`` gives the cost of the network that weights lead to. A limit of which less is used weighs less in the
    next round.

    >>> weights_that_use_up({"params": 0.3}, lambda weights: {"params": 0.2})
    {'params': 1.0}
    """
    weights = dict.fromkeys(limits, 1.0 / len(limits))
    for strength in _ROUNDS if len(weights) > 1 else ():
        cost = shares(weights)
        used = {name: weights[name] * (cost[name] / limit) ** strength for name, limit in limits.items()}
        weights = {name: weight / sum(used.values()) for name, weight in used.items()}
    return weights
