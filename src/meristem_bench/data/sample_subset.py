"""A subset of the samples of a split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from meristem_bench.data.streamed import Samples


@dataclass(frozen=True)
class SampleSubset:
    """The samples of certain rows."""

    samples: Samples
    rows: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, index: int, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        return self.samples.load(self.rows[index], rng)


def evenly_spaced(samples: Samples, count: int) -> Samples:
    """``count`` of the samples, evenly spaced in their order, in which classes usually follow one another; 0: all."""
    if count > len(samples):
        raise ValueError(f"there are {len(samples)} training samples that are not held out, not samples={count}")
    if not count:
        return samples
    return SampleSubset(samples, tuple(int(row) for row in np.arange(count) * len(samples) // count))
