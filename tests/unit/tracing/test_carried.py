"""A state that a model returns and is given back follows its units; if nobody says so, it is an output."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import meristem
from meristem import Space
from meristem.errors import TraceError

TOKENS = torch.randint(11, (2, 4), generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    """Two stacked layers with sizes of their own; the state is a list with that of each."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM):
        super().__init__()
        self.embed = nn.Embedding(11, 5)
        self.layers = nn.ModuleList([kind(5, 6, batch_first=True), kind(6, 7, batch_first=True)])
        self.head = nn.Linear(7, 11)

    def forward(self, tokens: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        x, carried = self.embed(tokens), []
        for layer, before in zip(self.layers, state or [None, None], strict=True):
            x, after = layer(x, before)
            carried.append(after)
        return self.head(x), carried


def described(space: Space) -> dict[str, list[str]]:
    return {state.path: [str(axis) for axis in state.axes] for state in space.states}


def test_without_carried_a_state_is_an_output() -> None:
    space = meristem.trace(Model(), TOKENS)
    assert list(space.groups) == ["embed"]
    assert space.states == ()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_the_space_remembers_the_axes_of_every_state(kind: type[nn.RNNBase]) -> None:
    space = meristem.trace(Model(kind), TOKENS, carried=1)
    assert list(space.groups) == ["embed", "layers.0", "layers.1"]
    assert space.carried == 1
    places = ["[0][0]", "[0][1]", "[1][0]", "[1][1]"] if kind is nn.LSTM else ["[0]", "[1]"]
    assert str(space.states[-1]) == f"state{places[-1]}: 1, 2, layers.1"
    assert described(space) == {f"state{at}": ["1", "2", f"layers.{at[1]}"] for at in places}


def test_absent_or_given_or_named_the_space_is_the_same() -> None:
    model = Model()
    state = [(torch.zeros(1, 2, size), torch.zeros(1, 2, size)) for size in (6, 7)]
    spaces = [
        meristem.trace(model, example, carried=carried)
        for example, carried in (
            (TOKENS, 1),
            ((TOKENS, None), 1),
            ((TOKENS, state), 1),
            ({"tokens": TOKENS, "state": state}, 1),
        )
    ]
    for space in spaces:
        assert space.groups == spaces[0].groups
        assert space.costs == spaces[0].costs
        assert described(space) == described(spaces[0])


class ByName(Model):
    def forward(self, tokens: Tensor, *, memory: list | None = None) -> dict[str, object]:
        logits, carried = super().forward(tokens, memory)
        return {"memory": carried, "logits": logits}


def test_a_state_with_a_name() -> None:
    space = meristem.trace(ByName(), {"tokens": TOKENS}, carried="memory")
    assert list(space.groups) == ["embed", "layers.0", "layers.1"]


class Strict(Model):
    """Its own code writes down the size of a state that comes in."""

    def forward(self, tokens: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        if state is not None:
            state = [state[0], tuple(part.view(1, -1, 7) for part in state[1])]
        return super().forward(tokens, state)


@pytest.mark.parametrize("given", [False, True])
def test_a_state_whose_size_is_written_in_the_code_pins_its_units(given: bool) -> None:
    """Also when the example has none: the model is run again with the state it returned."""
    state = [(torch.zeros(1, 2, size), torch.zeros(1, 2, size)) for size in (6, 7)]
    space = meristem.trace(Strict(), (TOKENS, state) if given else TOKENS, carried=1)
    assert list(space.groups) == ["embed", "layers.0"]


class OtherState(Model):
    """What it returns as the state of the second layer is in another order."""

    def forward(self, tokens: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        logits, carried = super().forward(tokens, state)
        return logits, [carried[0], tuple(part.flip(-1) for part in carried[1])]


def test_a_state_that_comes_back_rearranged_is_not_free() -> None:
    assert list(meristem.trace(OtherState(), TOKENS, carried=1).groups) == ["embed", "layers.0"]


def test_wrong_places_are_refused() -> None:
    with pytest.raises(TraceError, match=r"carried=2 .* forward takes \(tokens, state\)"):
        meristem.trace(Model(), TOKENS, carried=2)
    with pytest.raises(TraceError, match=r"carried=0 .* returns|does not run with the state it returned"):
        meristem.trace(nn.Linear(3, 3), torch.randn(2, 3), carried=0)
    with pytest.raises(TraceError, match=r"carried='state' .* returns a tuple of 2; give its position"):
        meristem.trace(Model(), TOKENS, carried="state")


class NoState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, times: int = 1) -> tuple[Tensor, Tensor]:
        hidden = self.a(x)
        return self.b(hidden * sum(range(times))), hidden


def test_a_model_that_cannot_take_back_what_it_returns() -> None:
    with pytest.raises(TraceError, match="the model does not run with the state it returned"):
        meristem.trace(NoState(), torch.randn(5, 3), carried=1)
