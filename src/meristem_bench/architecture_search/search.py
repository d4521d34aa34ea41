"""Searches which blocks of a network to keep within a budget, and what that costs, for a run to train the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim

from meristem.control.controller import widths_of
from meristem.control.fit_budget import fit
from meristem.cost.ledger import SEARCH, Ledger
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem.space.space import Space
from meristem_bench.architecture_search.choices import Choices
from meristem_bench.architecture_search.searchers import Searcher
from meristem_bench.data.arrays import Arrays
from meristem_bench.runs.folder import Folder, write_json
from meristem_bench.runs.result import RESULT_FORMAT
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import build_model, load_data, lr_factor, trace_model

_TRAVEL = 6.0  # the sum of the rates of the scores: 0.0003 over 50 epochs of half of CIFAR-10 by 64, DARTS' own
_WHOLE = 1e3  # preferred to all blocks


@dataclass(frozen=True)
class Found:
    """What a search has found: the widths of all groups, blocks among them, and what finding them has cost."""

    widths: dict[str, int]
    probabilities: dict[str, float]
    ledger: Ledger

    def write(self, run: Run, searcher: Searcher, folder: Folder) -> None:
        """As the result of a run, whose widths the method `direct` trains and whose cost it then stands on."""
        content: dict[str, Any] = {"format": RESULT_FORMAT, "name": run.name, "method": searcher.name, "seed": run.seed}
        content |= {"widths": self.widths, "spend_macs": self.ledger.spent, "probabilities": self.probabilities}
        folder.path.mkdir(parents=True, exist_ok=True)
        write_json(folder.result, content)


def search(run: Run, searcher: Searcher) -> Found:
    """Train weights on one half of the training samples and scores on the other, then keep the likeliest blocks.

    As many as the run's budget has room for stay, all at full width: the space of blocks is that of growing, and the
    scores' rate is scaled with the number of their steps.
    """
    torch.manual_seed(run.seed)
    data = load_data(run)
    model = build_model(run, data)
    space = trace_model(run, model, data.example)
    if not space.blocks:
        raise MeristemError(f"{run.name}: no block may be absent, so there is nothing to search; set depth=yes")
    generator = torch.Generator().manual_seed(run.seed)
    halves = _halves(data, generator)
    trial = _Search(run, searcher, model, space, halves, generator)
    for epoch in range(run.epochs):
        trial.epoch(epoch)
    return Found(_kept(run, space, trial.choices.probabilities), trial.choices.probabilities, trial.ledger)


class _Search:
    def __init__(
        self,
        run: Run,
        searcher: Searcher,
        model: nn.Module,
        space: Space,
        halves: tuple[Arrays, Arrays],
        generator: Any,
    ) -> None:
        self._run, self._searcher, self._model, self._halves = run, searcher, model, halves
        self._prices, self._full, self._generator = Prices(space), space.full, generator
        self._optimizer = run.optimizer.build(model)
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self.choices = Choices(model, space, generator)
        self._per_epoch = halves[0].steps(run.batch)
        steps = max(1.0, (1 - searcher.warmup) * run.epochs * self._per_epoch / searcher.every)
        self._scores = optim.Adam(
            self.choices.scores, lr=_TRAVEL / steps, betas=searcher.betas, weight_decay=searcher.decay
        )
        self._block_prices = self._shares_of_blocks(run)
        examples = run.batch / len(halves[0].example[0])
        self.ledger = Ledger(self._prices.dense["macs"] * examples)
        self._taken = 0

    def _shares_of_blocks(self, run: Run) -> dict[str, float]:
        """What each block costs, over what the budget allows in all."""
        name, cap = next(iter(run.growth.budget.shares(self._prices).items()))
        whole = self._prices.share(name, self._full)
        return {
            group: (whole - self._prices.share(name, {**self._full, group: 0})) / cap for group in self.choices.by_group
        }

    def epoch(self, epoch: int) -> None:
        self._model.train()
        others = self._batches(self._halves[1])
        searching = epoch >= self._searcher.warmup * self._run.epochs
        for batch in self._halves[0].train(self._run.batch, self._generator):
            self._weight_step(batch)
            if searching and self._taken % self._searcher.every == 0:
                self._score_step(next(others))

    def _weight_step(self, batch: tuple[Tensor, Tensor]) -> None:
        factor = lr_factor(self._run, self._taken, self._per_epoch * self._run.epochs)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._searcher.prepare(self.choices, self._generator)
        self._optimizer.zero_grad()
        self._backward(batch)
        self._optimizer.step()
        self._taken += 1
        self.ledger = self.ledger.after_training(1, self._share, SEARCH)

    def _score_step(self, batch: tuple[Tensor, Tensor]) -> None:
        self._scores.zero_grad()
        self._searcher.score_step(self.choices, self._generator, lambda: self._backward(batch), self._block_prices)
        self._scores.step()
        self.ledger = self.ledger.after_evaluating(self._searcher.score_cost(self._share), 1.0, SEARCH)

    def _backward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        loss = self._run.task.loss(self._model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    @property
    def _share(self) -> float:
        """The macs of the network that the last step ran, as a share of the whole."""
        return self._prices.share("macs", self.choices.widths(self._full))

    def _batches(self, half: Arrays) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from half.train(self._run.batch, self._generator)


def _halves(data: Any, generator: torch.Generator) -> tuple[Arrays, Arrays]:
    """The training samples, split at random into those for weights and those for scores."""
    if not isinstance(data, Arrays):
        raise MeristemError("a search splits the training samples, which it can do with those in memory (Arrays) alone")
    inputs, targets = data.splits["train"]
    order = torch.randperm(len(inputs), generator=generator)
    middle = (len(order) + 1) // 2
    parts = (order[:middle], order[middle:])
    first, second = (Arrays({**data.splits, "train": (inputs[rows], targets[rows])}, data.augment) for rows in parts)
    return first, second


def _kept(run: Run, space: Space, probabilities: dict[str, float]) -> dict[str, int]:
    """All units, and as many blocks as fit the budget, the likeliest first."""
    prices = Prices(space)
    preference = {
        name: np.array([probabilities[name]])
        if name in probabilities
        else _WHOLE - np.arange(group.units) / group.units
        for name, group in space.groups.items()
    }
    return widths_of(fit(prices, preference, run.growth.budget.shares(prices)))
