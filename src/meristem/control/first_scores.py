"""What the scores of trained gates start from: how likely each absent unit is to be drawn, and when it wakes up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from meristem.control.draws import logit
from meristem.control.text_settings import number
from meristem.cost.price import Prices
from meristem.space.arrays import BoolArray, FloatArray
from meristem.space.space import Block, Space

PAPER_STEPS = 62_400  # 160 epochs of CIFAR-10 at batch 128: the steps the paper's gate learning rate is meant for


@dataclass(frozen=True)
class FirstNetwork:
    """The first network of a run, and what it may come to cost."""

    masks: Mapping[str, BoolArray]
    prices: Prices
    caps: Mapping[str, float]

    @property
    def competitors(self) -> dict[str, int]:
        """How many units compete with those of each group: all of the group, or the blocks of a stage."""
        return _competitors(self.prices.space)


class FirstScores(Protocol):
    """A rule for the first score of every unit, from the first network and the run's random numbers."""

    def scores(self, network: FirstNetwork, rng: np.random.Generator) -> dict[str, FloatArray]: ...


@dataclass(frozen=True)
class OneDrawn:
    """Live units start likely to stay; of the absent ones of a group, and of a stage's blocks, about one is drawn."""

    live: float = number(2.5)

    def scores(self, network: FirstNetwork, rng: np.random.Generator) -> dict[str, FloatArray]:
        return {
            name: np.where(network.masks[name], self.live, logit(1.0 / (count + 1)))
            for name, count in network.competitors.items()
        }


@dataclass(frozen=True)
class Normal:
    """Absent units of a group of n have scores ~ N(logit(1 / n), deviation^2), as the paper's own numbers imply.

    With one score for all, every unit of a group would wake up in the same epoch.
    """

    live: float = number(3.0)
    deviation: float = number(1.5)

    def scores(self, network: FirstNetwork, rng: np.random.Generator) -> dict[str, FloatArray]:
        scores = {}
        for name, count in network.competitors.items():
            mask = network.masks[name]
            absent = logit(1.0 / max(count, 2)) + self.deviation * rng.standard_normal(len(mask))
            scores[name] = np.where(mask, self.live, absent)
        return scores


@dataclass(frozen=True)
class Staircase:
    """Absent units wake up one after the other on the way to the budget, whatever it is (Eq. Staircase).

    A sleeping unit wakes when the drive so far, the sum of rate times lambda, is about exp(-s). The i-th of n units, in
    random order, gets s = -log(D u / (x f)), u = (i + 1/2) / n: D is the drive that ``climb`` of the paper's run pours
    out on its way to the budget, f = (n / mean n)^(-1/2) the shape of the network, and x the share of units at which
    widths of min(n, x n f) cost the budget. Blocks feel ``block_weight`` of the drive.
    """

    live: float = number(3.0)
    climb: float = number(0.2)
    block_weight: float = 0.1
    drive_per_step: float = 0.5 * 0.1 / (1 - 0.9)  # base times gate rate over 1 - momentum

    def scores(self, network: FirstNetwork, rng: np.random.Generator) -> dict[str, FloatArray]:
        competitors, space = network.competitors, network.prices.space
        mean = float(np.mean([count for name, count in competitors.items() if name not in space.blocks]))
        shape = {name: 1.0 if name in space.blocks else (count / mean) ** -0.5 for name, count in competitors.items()}
        share = _share_at(network, shape)
        drive = self.climb * PAPER_STEPS * self.drive_per_step / math.atanh(0.95)
        turns = {block.group: turn for stage in space.stages for block, turn in _shuffled(stage.blocks, rng)}
        scores = {}
        for name, count in competitors.items():
            mask = network.masks[name]
            if name in space.blocks:
                u = np.array([(turns[name] + 0.5) / count])
                wakes_at = self.block_weight * drive * u / share
            else:
                u = rng.permutation((np.arange(count) + 0.5) / count)
                wakes_at = drive * u / (share * shape[name])
            scores[name] = np.where(mask, self.live, -np.log(wakes_at))
        return scores


def _competitors(space: Space) -> dict[str, int]:
    blocks = {block.group: len(stage.blocks) for stage in space.stages for block in stage.blocks}
    return {name: blocks.get(name, group.units) for name, group in space.groups.items()}


def _share_at(network: FirstNetwork, shape: Mapping[str, float]) -> float:
    """The x at which widths of min(n, x n f) cost the budget, by bisection."""
    prices = network.prices
    full, smallest = prices.space.full, prices.space.smallest

    def fits(share: float) -> bool:
        widths = {name: min(full[name], max(smallest[name], share * full[name] * shape[name])) for name in full}
        return prices.fits(widths, network.caps)

    low, high = 0.0, 1.0 / min(shape.values())
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(low, 1e-6)


def _shuffled(blocks: tuple[Block, ...], rng: np.random.Generator) -> list[tuple[Block, int]]:
    """Every block with its place in a random order."""
    return list(zip(blocks, rng.permutation(len(blocks)).tolist(), strict=True))


# The names by which a method's text chooses one.
FIRST_SCORES: Mapping[str, FirstScores] = {"one-drawn": OneDrawn(), "normal": Normal(), "staircase": Staircase()}
