"""What a run grows: how much it may cost, by which method, and which parts of the model take part."""

from __future__ import annotations

from dataclasses import dataclass

from meristem.control.budget import Budget
from meristem.control.method import Method
from meristem.methods import parse_method
from meristem_bench.runs.settings import check_settings


@dataclass(frozen=True)
class GrowthConfig:
    budget: Budget = Budget(params="36%")
    method: str = "default"  # as meristem.methods.parse_method reads it
    widths: str | None = None  # the folder of the run whose final widths are trained, for a method that needs some
    pin: str = ""  # patterns on module paths whose units must stay, with commas between
    depth: bool = False  # whether blocks that keep their shape may come and go, too

    def __post_init__(self) -> None:
        check_settings(self)
        parse_method(self.method)

    @property
    def pinned(self) -> list[str]:
        """The patterns one by one."""
        return [pattern.strip() for pattern in self.pin.split(",") if pattern.strip()]

    @property
    def policies(self) -> Method:
        """The method as an object."""
        return parse_method(self.method)
