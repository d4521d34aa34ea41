"""What a unit is worth against its price: evidence of live and absent units to one order of preference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meristem.gate import BoolArray, FloatArray

_FLOOR = 1e-30


@dataclass(frozen=True)
class Worth:
    """log(evidence / price) of every unit (docs/equations.md, Worth).

    A live unit counts with its own evidence. An absent one counts with what it would get if the group's evidence were
    shared by one unit more, by two more, and so on: the more of them come in, the less each is expected to add. Live
    units are preferred by ``loyalty`` (a factor), so that equally good units are not swapped. Absent units come in the
    order: never lived, then stored ones by the evidence they had; ``optimism`` scales what is expected of them.
    """

    loyalty: float = 2.0
    optimism: float = 1.0

    def preference(
        self,
        evidence: Mapping[str, FloatArray],
        live: Mapping[str, BoolArray],
        lived: Mapping[str, BoolArray],
        prices: Mapping[str, float],
    ) -> dict[str, FloatArray]:
        found = {}
        for name, values in evidence.items():
            mask = live[name]
            worth = np.log(np.maximum(values, _FLOOR))
            absent = np.flatnonzero(~mask)
            if len(absent):
                rank = np.lexsort((absent, -values[absent], lived[name][absent]))
                total = max(float(values[mask].sum()), _FLOOR)
                shared = total * self.optimism / (mask.sum() + 1.0 + np.arange(len(absent)))
                worth[absent[rank]] = np.log(shared)
            worth[mask] += np.log(self.loyalty)
            found[name] = worth - np.log(prices[name])
        return found
