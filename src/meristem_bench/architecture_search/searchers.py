"""Two searches of the literature among blocks that may be absent: DARTS by mixtures, ProxylessNAS by samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from meristem.cost.ledger import FORWARD_AND_BACKWARD
from meristem_bench.architecture_search.choices import BLOCK, Choices, set_gradients

Backward = Callable[[], Tensor]  # runs the network on a batch and goes backward; returns the loss


class Searcher(Protocol):
    """How weights and scores are trained in turn. Costs are forward passes of a batch, the whole network's being 1."""

    @property
    def name(self) -> str: ...

    @property
    def betas(self) -> tuple[float, float]:
        """Of Adam, on the scores."""
        ...

    @property
    def decay(self) -> float:
        """Of the scores, by Adam."""
        ...

    @property
    def every(self) -> int:
        """How many steps of the weights one of the scores follows."""
        ...

    @property
    def warmup(self) -> float:
        """The share of the search in which weights alone are trained."""
        ...

    def prepare(self, choices: Choices, generator: torch.Generator) -> None:
        """A step of the weights follows."""
        ...

    def score_step(
        self, choices: Choices, generator: torch.Generator, backward: Backward, prices: Mapping[str, float]
    ) -> None:
        """Give the scores their gradients, from a batch of the other half of the data."""
        ...

    def score_cost(self, share: float) -> float:
        """Of a step of the scores in which a network of that share was taken."""
        ...


@dataclass(frozen=True)
class Darts:
    """Every choice is a mixture, and its scores descend the loss on the other half of the data (first order).

    Liu et al., ICLR 2019: one step of the scores after each of the weights, Adam with 0.5 and 0.999, decay 0.001.
    """

    name: str = "darts"
    betas: tuple[float, float] = (0.5, 0.999)
    decay: float = 1e-3
    every: int = 1
    warmup: float = 0.0

    def prepare(self, choices: Choices, generator: torch.Generator) -> None:
        choices.mix()

    def score_step(
        self, choices: Choices, generator: torch.Generator, backward: Backward, prices: Mapping[str, float]
    ) -> None:
        choices.mix()
        backward()

    def score_cost(self, share: float) -> float:
        return float(FORWARD_AND_BACKWARD)


@dataclass(frozen=True)
class Proxyless:
    """One network is drawn at every step; scores learn from what the choices not taken would have changed.

    Cai et al., ICLR 2019: a quarter of the search for the weights alone, then a step of the scores after every five of
    the weights, Adam without momentum, and ``pressure`` times (expected cost - budget) / budget in the loss.
    """

    name: str = "proxyless"
    betas: tuple[float, float] = (0.0, 0.999)
    decay: float = 0.0
    every: int = 5
    warmup: float = 0.25
    pressure: float = 0.1

    def prepare(self, choices: Choices, generator: torch.Generator) -> None:
        choices.draw(generator)

    def score_step(
        self, choices: Choices, generator: torch.Generator, backward: Backward, prices: Mapping[str, float]
    ) -> None:
        choices.draw(generator)
        with choices.weighing():
            backward()
            set_gradients(list(choices.by_group.values()))
        expected = torch.stack(
            [prices[group] * choice.probabilities[BLOCK] for group, choice in choices.by_group.items()]
        ).sum()
        (self.pressure * expected).backward()  # type: ignore[no-untyped-call]

    def score_cost(self, share: float) -> float:
        return FORWARD_AND_BACKWARD * share + (1.0 - share)
