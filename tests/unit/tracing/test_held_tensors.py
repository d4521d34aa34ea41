"""Parameters that modules hold a second time, outside of what torch registers: none of them may go on with the old."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

import meristem
from between import X, assert_free_and_exact
from helpers import go


class Pair(NamedTuple):
    weight: Tensor
    bias: Tensor


@dataclass
class Box:
    """Something that nobody looks into."""

    content: Any

    def __getitem__(self, key: Any) -> Any:
        return self.content[key]


class Holding(nn.Module):
    """Reads the weights of its layers out of ``hold(layers)``, which it keeps as a plain attribute."""

    def __init__(self, hold: Callable[[list[nn.Linear]], Any]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 2)
        self.held = hold([self.one, self.two])

    def forward(self, x: Tensor) -> Tensor:
        for at in range(2):
            weight, bias = self.held[at]
            x = F.linear(x, weight, bias)
        return x


FOLLOWED: dict[str, Callable[[list[nn.Linear]], Any]] = {
    "lists": lambda layers: [[layer.weight, layer.bias] for layer in layers],
    "tuples": lambda layers: tuple((layer.weight, layer.bias) for layer in layers),
    "named tuples": lambda layers: [Pair(layer.weight, layer.bias) for layer in layers],
    "dicts": lambda layers: {at: (layer.weight, layer.bias) for at, layer in enumerate(layers)},
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_containers_are_followed(name: str, tmp_path: Path) -> None:
    model = Holding(FOLLOWED[name])
    assert_free_and_exact(copy.deepcopy(model))
    fresh, space = copy.deepcopy(model), meristem.trace(model, X)
    live = meristem.Live(model, space, optim.SGD(model.parameters(), lr=0.1))
    go(live, {"one": [1, 4]})
    assert model.held[0][0] is model.one.weight
    meristem.io.export.save(live, tmp_path)
    assert torch.equal(meristem.load(tmp_path, fresh)(X), model(X))


def test_gates_that_would_not_reach_them_are_refused() -> None:
    model = Holding(FOLLOWED["lists"])
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(meristem.MeristemError, match="is also held in the attribute 'held' of Holding"):
        meristem.Grower(model, optimizer, X, epochs=2, budget="60%", method="paper")


def test_what_nobody_looks_into_is_pinned() -> None:
    model = Holding(lambda layers: Box([(layer.weight, layer.bias) for layer in layers]))
    space = meristem.trace(model, X)
    assert not space.full
    assert any("does not work with another size" in pin.reason for pin in space.pinned)
