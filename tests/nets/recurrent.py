"""Parts of the zoo with a state that runs along time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence


class Recurrent(nn.Module):
    """Embedding, a recurrent module, and a head on every step (language model) or on the last one."""

    def __init__(self, cell: nn.RNNBase, o: int, last: bool = False):
        super().__init__()
        self.embed = nn.Embedding(11, cell.input_size)
        self.rnn = cell
        self.head = nn.Linear((cell.proj_size or cell.hidden_size) * (1 + cell.bidirectional), o)
        self.last = last

    def forward(self, idx: Tensor) -> Tensor:
        out, _ = self.rnn(self.embed(idx))
        return self.head(out[:, -1] if self.last else out)


class Packed(nn.Module):
    """Sequences of several lengths, packed for the recurrent layer; the head reads its last states."""

    def __init__(self, cell: nn.RNNBase):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(11, cell.input_size), cell
        self.head = nn.Linear(cell.hidden_size, 3)

    def forward(self, idx: Tensor) -> Tensor:
        lengths = torch.tensor([idx.shape[1] - 1, idx.shape[1]])
        packed = pack_padded_sequence(self.embed(idx.T), lengths, enforce_sorted=False)
        _, last = self.rnn(packed)
        return self.head((last[0] if isinstance(last, tuple) else last).sum(0))


class Stateful(nn.Module):
    """A language model that takes and returns its state: layers one above the other, each with a size of its own."""

    def __init__(self, *layers: nn.RNNBase, tied: bool = False):
        super().__init__()
        self.embed = nn.Embedding(11, layers[0].input_size)
        self.layers = nn.ModuleList(layers)
        last = layers[-1]
        self.head = nn.Linear((last.proj_size or last.hidden_size) * (1 + last.bidirectional), 11)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, idx: Tensor, state: Sequence[Any] | None = None) -> tuple[Tensor, list[Any]]:
        x, after = self.embed(idx), []
        for layer, before in zip(self.layers, state or [None] * len(self.layers), strict=True):
            x, carried = layer(x, before)
            after.append(carried)
        return self.head(x), after


class StatefulCell(nn.Module):
    """The same with a cell, called step by step."""

    def __init__(self, cell: nn.RNNCellBase):
        super().__init__()
        self.embed = nn.Embedding(11, cell.input_size)
        self.cell = cell
        self.head = nn.Linear(cell.hidden_size, 11)

    def forward(self, idx: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        outs = []
        for x in self.embed(idx).unbind(1):
            state = self.cell(x, state)
            outs.append(self.head(state[0] if isinstance(state, tuple) else state))
        return torch.stack(outs, 1), state


class InChunks(nn.Module):
    """Runs a model that takes and returns its state on two halves of the tokens, one after the other."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, idx: Tensor) -> tuple[Tensor, Tensor]:
        first, second = idx.chunk(2, 1)
        one, state = self.inner(first)
        return one, self.inner(second, state)[0]


class AttendedStates(nn.Module):
    """A query from the last hidden state attends over all of them; the two are joined for the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 5)
        self.rnn = nn.GRU(5, 6, batch_first=True)
        self.query = nn.Linear(6, 4)
        self.key = nn.Linear(6, 4)
        self.head = nn.Linear(12, 3)

    def forward(self, idx: Tensor) -> Tensor:
        out, last = self.rnn(self.embed(idx))
        weights = torch.softmax(self.key(out) @ self.query(last[-1]).unsqueeze(-1), 1)
        return self.head(torch.cat([(weights * out).sum(1), last[-1]], -1))


class EncoderDecoder(nn.Module):
    """What the encoder ends with is where the decoder starts: its output as it is, its cells through a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 5)
        self.encoder = nn.GRU(5, 6, batch_first=True)
        self.bridge = nn.Linear(6, 6)
        self.decoder = nn.LSTM(5, 6, batch_first=True)
        self.head = nn.Linear(6, 11)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.embed(idx)
        _, last = self.encoder(x)
        return self.head(self.decoder(x, (last, torch.tanh(self.bridge(last))))[0])
