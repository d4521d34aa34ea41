"""An arm of a study, as users write it: a method, and for a fixed structure perhaps the cost of the arm grown."""

from __future__ import annotations

from dataclasses import dataclass

from meristem.errors import MeristemError

GROWN = "grown"  # the arm that is run with the method of the run itself
UNIFORM = "uniform"
_COST = "cost"
_AT_GROWN_COST = f"{_COST}={GROWN}"


@dataclass(frozen=True)
class Arm:
    """``direct:cost=grown`` is the method ``direct``, trained for as long as makes it cost what the arm grown costs.

    >>> Arm.parse("direct:cost=grown")
    Arm(method='direct', at_grown_cost=True)
    """

    method: str  # as meristem.methods.parse_method reads it, or GROWN
    at_grown_cost: bool = False

    @staticmethod
    def parse(text: str) -> Arm:
        costs = [part.partition("=")[2] for part in text.split(":")[1:] if part.partition("=")[0] == _COST]
        wrong = next((cost for cost in costs if cost != GROWN), None)
        if wrong is not None:
            raise MeristemError(
                f"the arm {text} can only cost what the arm grown costs: write {_AT_GROWN_COST}, not {_COST}={wrong}"
            )
        return Arm(":".join(part for part in text.split(":") if part != _AT_GROWN_COST), bool(costs))

    def __str__(self) -> str:
        return f"{self.method}:{_AT_GROWN_COST}" if self.at_grown_cost else self.method
