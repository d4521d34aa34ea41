"""How much each of several caps weighs in the price of a unit, so that all of them are used up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

_ROUNDS = 20
_FIRST_STEP = 4.0  # of the logarithm of a weight


def weights_that_use_up(
    limits: Mapping[str, float], shares: Callable[[Mapping[str, float]], Mapping[str, float]]
) -> dict[str, float]:
    """The weights, by metric, at which a network uses up all limits, or comes as close to that as any that was tried.

    ``shares`` gives the cost of the network that weights lead to. A metric of which more is used than of the others
    becomes dearer; its step is halved whenever that turns round, so two limits are found by bisection.

    >>> weights_that_use_up({"params": 0.3}, lambda weights: {"params": 0.2})
    {'params': 1.0}
    """
    logs, steps, directions = dict.fromkeys(limits, 0.0), dict.fromkeys(limits, _FIRST_STEP), dict.fromkeys(limits, 0.0)
    best, least_used = _normalised(logs), -math.inf
    for _ in range(_ROUNDS if len(limits) > 1 else 0):
        weights = _normalised(logs)
        cost = shares(weights)
        used = {name: math.log(max(cost[name], 1e-12) / limit) for name, limit in limits.items()}
        if min(used.values()) > least_used:
            best, least_used = weights, min(used.values())
        mean = sum(used.values()) / len(used)
        for name in limits:
            direction = math.copysign(1.0, used[name] - mean)
            steps[name] *= 0.5 if direction == -directions[name] else 1.0
            directions[name] = direction
            logs[name] += direction * steps[name]
    return best


def _normalised(logs: Mapping[str, float]) -> dict[str, float]:
    highest = max(logs.values())
    weights = {name: math.exp(value - highest) for name, value in logs.items()}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}
