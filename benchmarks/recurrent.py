"""How much faster a recurrent language model trains when few of its hidden units live, measured in one run.

    python benchmarks/recurrent.py             # a quarter of the hidden units; some minutes on one core
    python benchmarks/recurrent.py --live 163 --repeats 9

The medium word-level model: an embedding of 650, two stacked LSTMs of 650, a decoder to 10 000 words; 20 sequences of
35 words a step. The embedding keeps its 650 dimensions and the decoder its 10 000 rows; hidden units are live or not,
for real. Steps of the full and of the small network take turns, so that other work on the machine meets both.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

import meristem

WORDS, SIZE, BATCH, STEPS = 10_000, 650, 20, 35


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, SIZE)
        self.first, self.second = nn.LSTM(SIZE, SIZE), nn.LSTM(SIZE, SIZE)
        self.decoder = nn.Linear(SIZE, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        hidden, _ = self.first(self.embed(words))
        hidden, _ = self.second(hidden)
        return self.decoder(hidden)


def step_seconds(model: nn.Module, optimizer: optim.Optimizer, words: Tensor, following: Tensor) -> float:
    start = time.perf_counter()
    loss = F.cross_entropy(model(words).flatten(0, 1), following.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.perf_counter() - start


def compare(live_units: int, repeats: int) -> None:
    torch.manual_seed(0)
    full = LanguageModel()
    small = copy.deepcopy(full)
    optimizers = [optim.SGD(model.parameters(), lr=0.1) for model in (full, small)]
    space = meristem.trace(small, torch.zeros(2, 1, dtype=torch.long))  # two words are enough to read it
    live = meristem.Live(small, space, optimizers[1])
    live.apply(live.plan({"first": range(live_units), "second": range(live_units)}))
    words = torch.randint(WORDS, (STEPS + 1, BATCH))
    seconds: list[list[float]] = [[], []]
    for repeat in range(repeats + 1):
        for times, model, optimizer in zip(seconds, (full, small), optimizers, strict=True):
            took = step_seconds(model, optimizer, words[:-1], words[1:])
            if repeat:  # the first is to warm up
                times.append(took)
    whole, part = map(statistics.median, seconds)
    params = meristem.count_params(space, live.widths) / meristem.count_params(space)
    macs = meristem.count_macs(space, live.widths) / meristem.count_macs(space)
    print(
        f"{live_units} of {SIZE} hidden units: {part:.2f} s a step against {whole:.2f} s, {part / whole:.0%} "
        f"(bar: 40 %); {params:.0%} of the parameters, {macs:.0%} of the macs"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", type=int, default=SIZE // 4)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    compare(args.live, args.repeats)
