"""What a run grows: how much it may cost, by which method, and which parts of the model take part."""

from __future__ import annotations

from dataclasses import dataclass

from meristem.control.budget import Budget
from meristem.control.method_text import named_method
from meristem_bench.runs.settings import check_settings

DENSE = "dense"  # the method that trains the full model as it is
DIRECT = "direct"  # the method that trains the network another run has grown, from scratch


@dataclass(frozen=True)
class Growth:
    budget: Budget = Budget(params="36%")
    method: str = "default"  # as meristem.control.method_text reads it, "dense" or "direct"
    widths: str | None = None  # for "direct": the folder of the run whose final widths are trained from scratch
    pin: str = ""  # patterns on module paths whose units must stay, with commas between
    depth: bool = False  # whether blocks that keep their shape may come and go, too

    def __post_init__(self) -> None:
        check_settings(self)
        if self.method not in (DENSE, DIRECT):
            named_method(self.method, besides=(DENSE, DIRECT))

    @property
    def pinned(self) -> list[str]:
        """The patterns one by one."""
        return [pattern.strip() for pattern in self.pin.split(",") if pattern.strip()]

    @property
    def is_dense(self) -> bool:
        """Whether the full model is trained, whatever the budget is."""
        return self.method == DENSE

    @property
    def needs_widths(self) -> bool:
        """Whether what is trained is the network of another run."""
        return self.method == DIRECT
