"""Which outputs count: those keep their size, whatever grows and shrinks."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import meristem
from helpers import assert_is_masked_reference, go, random_target
from meristem.errors import TraceError

X = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))


class Answer(dict[str, Any]):
    """A dict with attributes, as language model libraries return it."""


@dataclass
class Result:
    logits: Tensor
    pred_boxes: Tensor
    last_hidden_state: Tensor
    attentions: tuple[Tensor, ...] = ()


class Returning(nn.Module):
    """Logits, and what they are made of."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.one, self.two, self.boxes, self.make = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 4), make

    def forward(self, x: Tensor) -> Any:
        hidden = torch.tanh(self.one(x))
        return self.make(self.two(hidden), self.boxes(hidden), hidden)


def answer(logits: Tensor, boxes: Tensor, hidden: Tensor) -> Answer:
    return Answer(logits=logits, pred_boxes=boxes, past_key_values=((hidden, hidden),))


MAKERS = {
    "a dict": answer,
    "a dataclass": lambda logits, boxes, hidden: Result(logits, boxes, hidden, (hidden,)),
    "a loss": lambda logits, boxes, hidden: {"loss": (logits.sum() + boxes.sum()), "encoder_hidden_states": [hidden]},
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_was_computed_on_the_way_does_not_count(name: str) -> None:
    torch.manual_seed(0)
    model = Returning(MAKERS[name]).double()
    space = meristem.trace(model, X.double())
    assert space.full["one"] == 8
    assert space.full.keys() <= {"one", "two", "boxes"}
    assert any("outputs that may change their size: " in note and "outputs='all'" in note for note in space.notes)
    full, live = copy.deepcopy(model), meristem.Live(model, space)
    for seed in range(2):
        go(live, random_target(space, np.random.default_rng(seed)))
        assert_is_masked_reference(live, full, (X.double(),))


def test_heads_keep_their_size() -> None:
    """Whatever is not known to be computed on the way counts: nobody may take a coordinate from a box."""
    assert meristem.trace(Returning(answer), X).full == {"one": 8}


def test_all_count_without_a_loss_or_logits() -> None:
    for make in (
        lambda logits, boxes, hidden: {"last_hidden_state": hidden, "other": logits, "pred_boxes": boxes},
        lambda logits, boxes, hidden: (logits, boxes, hidden),
    ):
        space = meristem.trace(Returning(make), X)
        assert not space.groups
        assert not space.notes


def test_outputs_are_chosen() -> None:
    model = Returning(answer)
    assert not meristem.trace(model, X, outputs="all").groups
    only = meristem.trace(model, X, outputs="pred_boxes")
    assert only.full == {"one": 8, "two": 3}
    assert not only.notes
    assert meristem.trace(model, X, outputs=["logits", "pred_boxes"]).full == {"one": 8}
    pair = Returning(lambda logits, boxes, hidden: (logits + boxes.sum(), hidden))
    assert meristem.trace(pair, X, outputs=0).full["one"] == 8


def test_wrong_names_are_refused() -> None:
    with pytest.raises(TraceError, match=r"outputs='logit' is not among what .* did you mean logits\?"):
        meristem.trace(Returning(answer), X, outputs="logit")
    with pytest.raises(TraceError, match="but it returns a Tensor; leave outputs away"):
        meristem.trace(nn.Linear(5, 3), X, outputs="logits")
