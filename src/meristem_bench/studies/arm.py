"""An arm of a study, as users write it: a method, and perhaps other arms whose widths or whose cost it takes."""

from __future__ import annotations

from dataclasses import dataclass

GROWN = "grown"  # the arm that is run with the method of the run itself
UNIFORM = "uniform"
_COST, _OF = "cost=", "of="


@dataclass(frozen=True)
class Arm:
    """``uniform:cost=grown`` is the method ``uniform``, trained for as long as makes it cost what the arm grown costs.

    ``direct:of=morphnet`` trains the widths in which the arm morphnet ends; without ``of=`` those of the arm grown.
    What follows ``of=`` is the whole name of the other arm.

    >>> Arm.parse("direct:cost=grown:of=morphnet:freeze=0.3")
    Arm(method='direct', cost_of='grown', widths_of='morphnet:freeze=0.3')
    """

    method: str  # as meristem.methods.parse_method reads it, or GROWN
    cost_of: str | None = None  # the arm whose training cost it takes
    widths_of: str = GROWN  # the arm whose widths it trains, if its method needs some

    @staticmethod
    def parse(text: str) -> Arm:
        text, _, widths_of = text.partition(f":{_OF}")
        first, *parts = text.split(":")
        costs = [part.removeprefix(_COST) for part in parts if part.startswith(_COST)]
        method = ":".join([first, *(part for part in parts if not part.startswith(_COST))])
        return Arm(method, costs[-1] if costs else None, widths_of or GROWN)

    def __str__(self) -> str:
        cost = "" if self.cost_of is None else f":{_COST}{self.cost_of}"
        return f"{self.method}{cost}" + ("" if self.widths_of == GROWN else f":{_OF}{self.widths_of}")
