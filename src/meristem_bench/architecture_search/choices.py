"""A network in which every block that may be absent is a choice: the block, or nothing. Each choice has two scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from meristem.space.space import Space

BLOCK, NOTHING = 0, 1


class Choice(nn.Module):
    """In the place of a block: a mixture of both by their probabilities, or, where one is ``taken``, that alone.

    With ``weighs`` what is not taken is computed, too, and ``slopes`` are those of the loss by the shares of both.
    """

    def __init__(self, block: nn.Module, scores: Tensor) -> None:
        super().__init__()
        self.block, self.scores = block, scores
        self.taken: int | None = None
        self.weighs = False
        self.slopes: Tensor | None = None

    @property
    def probabilities(self) -> Tensor:
        return self.scores.softmax(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.taken is None:
            p = self.probabilities
            mixed: Tensor = p[BLOCK] * self.block(x) + p[NOTHING] * x
            return mixed
        if not self.weighs:
            return self._run(self.taken, x)
        out = self._run(self.taken, x)
        with torch.no_grad():
            other = self._run(1 - self.taken, x)
        by_choice = [out.detach(), other] if self.taken == BLOCK else [other, out.detach()]

        def keep(gradient: Tensor) -> None:
            self.slopes = torch.stack([(gradient * each).sum() for each in by_choice])

        out.register_hook(keep)  # type: ignore[no-untyped-call]
        return out

    def _run(self, which: int, x: Tensor) -> Tensor:
        out: Tensor = self.block(x) if which == BLOCK else x.clone()
        return out


class Choices:
    """All choices of a model. They take the places of its blocks."""

    def __init__(self, model: nn.Module, space: Space, generator: torch.Generator) -> None:
        self._model = model
        self.by_group: dict[str, Choice] = {}
        for group, block in space.blocks.items():
            scores = (1e-3 * torch.randn(2, generator=generator)).requires_grad_()
            self.by_group[group] = Choice(model.get_submodule(block.path), scores)
            model.set_submodule(block.path, self.by_group[group])

    @property
    def scores(self) -> list[Tensor]:
        return [choice.scores for choice in self.by_group.values()]

    @property
    def probabilities(self) -> dict[str, float]:
        """Of every block, that it is there."""
        return {group: float(choice.probabilities[BLOCK].detach()) for group, choice in self.by_group.items()}

    def mix(self) -> None:
        """All choices are mixtures."""
        for choice in self.by_group.values():
            choice.taken, choice.weighs = None, False

    def draw(self, generator: torch.Generator) -> None:
        """One of the two is taken at each choice, by its probability."""
        for choice in self.by_group.values():
            drawn = torch.rand((), generator=generator)
            choice.taken = BLOCK if float(drawn) < float(choice.probabilities[BLOCK].detach()) else NOTHING

    @contextmanager
    def weighing(self) -> Iterator[None]:
        """What is not taken is weighed, too."""
        for choice in self.by_group.values():
            choice.weighs, choice.slopes = True, None
        try:
            yield
        finally:
            for choice in self.by_group.values():
                choice.weighs = False

    def widths(self, full: Mapping[str, int]) -> dict[str, int]:
        """Of the network that is taken now."""
        taken = {group: int(choice.taken != NOTHING) for group, choice in self.by_group.items()}
        return {**full, **taken}


def slopes_of_scores(probabilities: Tensor, slopes: Tensor) -> Tensor:
    """The slopes of the loss by the scores, from those by the shares: sum over j of s_j p_j (delta_ij - p_i).

    >>> slopes_of_scores(torch.tensor([0.25, 0.75]), torch.tensor([2.0, 0.0])).tolist()
    [0.375, -0.375]
    """
    weighted = slopes * probabilities
    return weighted - probabilities * weighted.sum()


def set_gradients(choices: Sequence[Choice]) -> None:
    """Give the scores of weighed choices their gradients."""
    for choice in choices:
        if choice.slopes is not None:
            choice.scores.grad = slopes_of_scores(choice.probabilities.detach(), choice.slopes)
