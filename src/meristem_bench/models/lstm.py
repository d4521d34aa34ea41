"""The two-layer LSTM language model of Zaremba, Sutskever and Vinyals (2014), in its three published sizes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

State = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]  # of both layers: hidden units and cells, [1, B, units]
VOCABULARY = 10_000  # of the Penn Treebank


class LstmLm(nn.Module):
    """Scores for the next word at every place of ``tokens`` [B, T], and the state to go on with.

    The layers are two modules, so that each has a hidden size of its own. Dropout stands between layers, never on what
    goes from one word to the next; it keeps a share of ``keep``. All parameters start uniform in +-``init_range``.
    """

    def __init__(
        self,
        classes: int = VOCABULARY,
        embedding: int = 1500,
        hidden: tuple[int, int] = (1500, 1500),
        keep: float = 1.0,
        init_range: float = 0.04,
    ) -> None:
        super().__init__()
        first, second = hidden
        self.embedding = nn.Embedding(classes, embedding)
        self.first = nn.LSTM(embedding, first, batch_first=True)
        self.second = nn.LSTM(first, second, batch_first=True)
        self.decoder = nn.Linear(second, classes)
        self.dropout = nn.Dropout(1.0 - keep)
        with torch.no_grad():
            for parameter in self.parameters():  # biases too
                parameter.uniform_(-init_range, init_range)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        first_state, second_state = state if state is not None else (None, None)
        hidden, first_state = self.first(self.dropout(self.embedding(tokens)), first_state)
        hidden, second_state = self.second(self.dropout(hidden), second_state)
        return self.decoder(self.dropout(hidden)), (first_state, second_state)


class _Published(NamedTuple):
    units: int  # of the embedding and of both layers
    keep: float
    init_range: float


_SIZES = {
    "small": _Published(200, 1.0, 0.1),
    "medium": _Published(650, 0.5, 0.05),
    "large": _Published(1500, 0.35, 0.04),
}


def lstm_lm(
    size: Literal["small", "medium", "large"] = "large", classes: int = VOCABULARY, keep: float | None = None
) -> LstmLm:
    """The language model of a published size; ``keep`` is the published one unless it is given."""
    if size not in _SIZES:
        raise ValueError(f"size must be one of {', '.join(_SIZES)}, got {size!r}")
    published = _SIZES[size]
    units, keep = published.units, published.keep if keep is None else keep
    return LstmLm(classes, units, (units, units), keep, published.init_range)


def lstm_small(classes: int = VOCABULARY, keep: float = _SIZES["small"].keep) -> LstmLm:
    return lstm_lm("small", classes, keep)


def lstm_medium(classes: int = VOCABULARY, keep: float = _SIZES["medium"].keep) -> LstmLm:
    return lstm_lm("medium", classes, keep)


def lstm_large(classes: int = VOCABULARY, keep: float = _SIZES["large"].keep) -> LstmLm:
    return lstm_lm("large", classes, keep)
