"""How much a model that has dropout drops."""

from __future__ import annotations

from dataclasses import dataclass

from meristem_bench.runs.growth import GrowthConfig
from meristem_bench.runs.settings import Share, check_settings


@dataclass(frozen=True)
class Dropout:
    keep: Share = 0.0  # the share that dropout keeps; 0: as the recipe's model has it
    keep_dense: Share = 0.0  # the same for the full model; 0: as `keep` says

    def __post_init__(self) -> None:
        check_settings(self)

    def kept_share(self, growth: GrowthConfig) -> float:
        """The share kept under a method. Pressure on weights regularises as dropout does: then the weaker one holds."""
        method = growth.policies
        if method.ignores_budget:
            return self.keep_dense or self.keep
        return self.keep if method.pressure is None else max(self.keep, self.keep_dense)
