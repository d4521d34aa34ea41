"""The two-layer LSTM language model of Zaremba, Sutskever and Vinyals (2014), in its three published sizes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

State = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]  # of both layers: hidden units and cells, [1, B, units]
VOCABULARY = 10_000  # of the Penn Treebank


class LstmLm(nn.Module):
    """Scores for the next word at every place of ``tokens`` [B, T], and the state to go on with.

    The layers are two modules, so that each has a hidden size of its own. Dropout stands between layers, never on what
    goes from one word to the next. ``keep`` is the share it keeps.
    """

    def __init__(
        self,
        classes: int = VOCABULARY,
        embedding: int = 1500,
        hidden: tuple[int, int] = (1500, 1500),
        keep: float = 1.0,
        reach: float = 0.04,
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
                parameter.uniform_(-reach, reach)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        before, above = state if state is not None else (None, None)
        made, before = self.first(self.dropout(self.embedding(tokens)), before)
        made, above = self.second(self.dropout(made), above)
        return self.decoder(self.dropout(made)), (before, above)


def lstm_small(classes: int = VOCABULARY, keep: float = 1.0) -> LstmLm:
    return LstmLm(classes, 200, (200, 200), keep, reach=0.1)


def lstm_medium(classes: int = VOCABULARY, keep: float = 0.5) -> LstmLm:
    return LstmLm(classes, 650, (650, 650), keep, reach=0.05)


def lstm_large(classes: int = VOCABULARY, keep: float = 0.35) -> LstmLm:
    return LstmLm(classes, 1500, (1500, 1500), keep, reach=0.04)
