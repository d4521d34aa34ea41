"""How much a model that has dropout drops."""

from __future__ import annotations

from dataclasses import dataclass

from meristem.control.method_text import named_method
from meristem_bench.runs.growth import Growth
from meristem_bench.runs.settings import Share, check_settings


@dataclass(frozen=True)
class Dropout:
    keep: Share = 0.0  # the share that dropout keeps; 0: as the recipe's model has it
    keep_dense: Share = 0.0  # the same for the full model; 0: as `keep` says

    def __post_init__(self) -> None:
        check_settings(self)

    def kept_share(self, growth: Growth) -> float:
        """The share kept under a method. A lasso regularises as dropout does: under it the weaker of the two holds."""
        if growth.is_dense:
            return self.keep_dense or self.keep
        lasso = not growth.needs_widths and named_method(growth.method).lasso
        return max(self.keep, self.keep_dense) if lasso else self.keep
