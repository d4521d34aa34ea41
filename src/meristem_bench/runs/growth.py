"""What a run grows: how much it may cost, by which method, and which parts of the model take part."""

from __future__ import annotations

from dataclasses import dataclass

from meristem.control.budget import Budget
from meristem.control.method import Method
from meristem.errors import MeristemError
from meristem.methods import parse_method
from meristem_bench.runs.settings import check_settings


@dataclass(frozen=True)
class GrowthConfig:
    budget: Budget = Budget(params="36%")
    method: str = "default"  # as meristem.methods.parse_method reads it
    widths: str | None = None  # the folder of the run whose final widths are trained, for a method that needs some
    cost_of: str | None = None  # the folder of a run; a fixed structure is trained for as long as costs the same
    pin: str = ""  # patterns on module paths whose units must stay, with commas between
    depth: bool = False  # whether blocks that keep their shape may come and go, too

    def __post_init__(self) -> None:
        check_settings(self)
        if parse_method(self.method).grows and self.cost_of is not None:
            raise MeristemError(
                f"cost_of sets the epochs of a fixed structure, but the method {self.method} grows: leave out cost_of, "
                f"or take the method uniform, direct or dense"
            )

    @property
    def pinned(self) -> list[str]:
        """The patterns one by one."""
        return [pattern.strip() for pattern in self.pin.split(",") if pattern.strip()]

    @property
    def policies(self) -> Method:
        """The method as an object."""
        return parse_method(self.method)
