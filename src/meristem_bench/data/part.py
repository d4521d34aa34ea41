"""A part of the samples of a split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from meristem_bench.data.streamed import Samples


@dataclass(frozen=True)
class Part:
    samples: Samples
    rows: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, index: int, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        return self.samples.load(self.rows[index], rng)


def spread_part(samples: Samples, count: int) -> Samples:
    """So many of the samples, spread evenly over their order, in which classes usually lie one behind the other.

    0 gives all of them.
    """
    if count > len(samples):
        raise ValueError(f"there are {len(samples)} training samples that are not held out, not samples={count}")
    if not count:
        return samples
    return Part(samples, tuple(int(row) for row in np.arange(count) * len(samples) // count))
