"""Carried states: units that stay keep their values wherever they move, and no two units are ever mixed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim
from torch.utils._pytree import tree_map

import meristem
from meristem import Live, Space
from meristem.errors import MeristemError, SurgeryError
from meristem.space.state_tensors import state_tensors

TOKENS = torch.randint(11, (2, 3), generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    """A recurrent module between an embedding and a head; the form of the state is its own, or a dict."""

    def __init__(self, rnn: nn.RNNBase, named: bool = False):
        super().__init__()
        self.embed, self.rnn, self.named = nn.Embedding(11, 3), rnn, named
        self.head = nn.Linear((rnn.proj_size or rnn.hidden_size) * (1 + rnn.bidirectional), 11)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        if state is not None and self.named:
            state = tuple(state.values())
        x, state = self.rnn(self.embed(tokens), state)
        return self.head(x), dict(zip("hc", state, strict=True)) if self.named else state


MAKERS = {
    "lstm": lambda: Model(nn.LSTM(3, 6, 2)),
    "gru": lambda: Model(nn.GRU(3, 6)),
    "bidirectional": lambda: Model(nn.LSTM(3, 6, 2, bidirectional=True)),
    "dict": lambda: Model(nn.LSTM(3, 6), named=True),
}


@pytest.fixture(scope="module")
def spaces() -> dict[str, Space]:
    return {name: meristem.trace(make(), TOKENS, carried=1) for name, make in MAKERS.items()}


def made(name: str, spaces: dict[str, Space], units: list[int]) -> tuple[Live, Any]:
    """A live model with some hidden units, and a state of it in which every number is that of its unit, from 1 on."""
    torch.manual_seed(0)
    model = MAKERS[name]()
    live = Live(model, spaces[name], optim.SGD(model.parameters(), lr=0.1))
    live.apply(live.plan({"rnn": units}))
    return live, numbered(model(TOKENS)[1], units)


def numbered(state: Any, units: list[int]) -> Any:
    numbers = torch.tensor(units, dtype=torch.float32) + 1
    return tree_map(lambda leaf: numbers.expand(leaf.shape).clone(), state)


def train(live: Live, state: Any = None) -> Any:
    """One step of training; the state that comes out."""
    live.optimizer.zero_grad()
    logits, state = live.model(TOKENS, state)
    logits.square().mean().backward()
    live.optimizer.step()
    return tree_map(torch.Tensor.detach, state)


def assert_numbers(state: Any, expected: list[int]) -> None:
    for path, leaf in state_tensors(state):
        assert leaf.shape[-1] == len(expected), path
        assert torch.equal(leaf, torch.tensor(expected, dtype=leaf.dtype).expand(leaf.shape)), path


@pytest.mark.parametrize("name", MAKERS)
def test_units_keep_their_values_at_their_new_places(name: str, spaces) -> None:
    """Stayed: kept; fresh and restored: zero; pruned: gone. The form of the state is the same, and it fits."""
    live, state = made(name, spaces, [0, 2, 3, 5])
    live.apply(live.plan({"rnn": [1, 2, 4, 5, 0]}))
    resized = live.resize_state(state)
    assert type(resized) is type(state)
    assert_numbers(resized, [1, 0, 3, 0, 6])
    live.model(TOKENS, resized)


def test_any_batch_size_dtype_and_graph(spaces) -> None:
    live, _ = made("gru", spaces, [0, 1])
    live.apply(live.plan({"rnn": [1, 2]}))
    state = torch.ones(1, 7, 2, dtype=torch.float64, requires_grad=True) * 3
    resized = live.resize_state(state)
    assert resized.dtype == torch.float64
    assert not resized.requires_grad
    assert resized[0].tolist() == [[3.0, 0.0]] * 7


def test_none_is_no_state(spaces) -> None:
    live, _ = made("gru", spaces, [0, 1])
    assert live.resize_state(None) is None


# --- which network a state is of ----------------------------------------------------------------------------------


def test_without_a_change_nothing_happens(spaces) -> None:
    live, state = made("lstm", spaces, [0, 2])
    live = Live(MAKERS["lstm"](), spaces["lstm"], start={"rnn": [0, 2]})
    assert live.resize_state(state) is state
    live.apply(live.plan({"rnn": [0, 2], "embed": [0]}))
    assert live.resize_state(state) is state


def test_several_states_each_once(spaces) -> None:
    live, state = made("gru", spaces, [0, 1, 2])
    live.apply(live.plan({"rnn": [1, 2, 3]}))
    for _ in range(3):
        assert_numbers(live.resize_state(state), [2, 3, 0])


def test_twice_is_once(spaces) -> None:
    """What has been resized is not taken for an old state, though units were exchanged at the same width."""
    live, state = made("lstm", spaces, [0, 1, 2])
    live.apply(live.plan({"rnn": [1, 2, 3]}))
    once = live.resize_state(state)
    assert live.resize_state(once) is once


def test_a_state_of_the_present_network_is_left_alone_where_sizes_tell(spaces) -> None:
    live, _ = made("gru", spaces, [0, 1, 2])
    live.apply(live.plan({"rnn": [1, 2]}))
    state = train(live)
    assert live.resize_state(state) is state


def test_where_sizes_do_not_tell_it_is_refused_once_training_goes_on(spaces) -> None:
    """A state that may be of either network could be mixed up in silence."""
    live, _ = made("gru", spaces, [0, 1, 2])
    live.apply(live.plan({"rnn": [1, 2, 3]}))
    with pytest.raises(SurgeryError, match=r"cannot be told .* after each step\(\), before training goes on"):
        live.resize_state(train(live))


def test_changes_that_a_state_missed(spaces) -> None:
    """Two changes without a call: a state of the last network, or of an earlier one where the sizes tell."""
    live, old = made("gru", spaces, [0, 1, 2, 3])
    live.apply(live.plan({"rnn": [1, 2]}))
    middle = numbered(train(live), [1, 2])
    live.apply(live.plan({"rnn": [0, 2, 5]}))
    assert_numbers(live.resize_state(middle), [0, 3, 0])
    assert_numbers(live.resize_state(old), [1, 3, 0])


def test_changes_that_a_state_missed_at_the_same_width(spaces) -> None:
    live, state = made("gru", spaces, [0, 1])
    for units in ([1, 2], [2, 3]):
        live.apply(live.plan({"rnn": units}))
    with pytest.raises(SurgeryError, match="cannot be told"):
        live.resize_state(state)


def test_called_after_every_change_there_is_no_doubt(spaces) -> None:
    live, state = made("gru", spaces, [0, 1])
    for units, expected in (([1, 2], [2, 0]), ([2, 3], [0, 0]), ([2, 4, 5], [0, 0, 0])):
        live.apply(live.plan({"rnn": units}))
        state = live.resize_state(state)
        assert_numbers(state, expected)
        state = numbered(train(live, state), units)
        assert_numbers(state, [unit + 1 for unit in units])
        state = tree_map(torch.zeros_like, state)


@pytest.mark.parametrize("how", ["an unchanging plan", "no plan"])
def test_a_step_that_changes_nothing_leaves_a_state_that_has_followed(spaces, how: str) -> None:
    """Units were exchanged at the same width before: the state is not taken for one from before that."""
    live, state = made("gru", spaces, [0, 1])
    live.apply(live.plan({"rnn": [1, 2]}))
    state = train(live, live.resize_state(state))
    if how == "no plan":
        live.stay()
    else:
        live.apply(live.plan({"rnn": [1, 2]}))
    assert live.resize_state(state) is state


# --- what is refused ----------------------------------------------------------------------------------------------


def test_what_is_no_state_of_this_network_is_refused(spaces) -> None:
    live, (h, c) = made("lstm", spaces, [0, 1, 2])
    live.apply(live.plan({"rnn": [0, 1]}))
    for state, message in (
        (h, r"it has state, expected state\[0\], state\[1\]"),
        ((h[0], c[0]), r"state\[0\] has 2 dimensions, expected 3"),
        ((h[..., :1], c[..., :1]), r"state\[0\] has 1 units in dimension 2, but the network had 3 .* and has 2 now"),
        ((h, c[..., :2]), "of different networks"),
        ({}, "it has no tensors"),
    ):
        with pytest.raises(SurgeryError, match=message) as error:
            live.resize_state(state)
        assert "\n" not in str(error.value)


def test_a_space_without_states_says_so() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    live = Live(model, meristem.trace(model, torch.randn(2, 3)))
    with pytest.raises(MeristemError, match="traced without a state; say where it is with carried="):
        live.resize_state(torch.zeros(2, 4))


# --- with a grower ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default:peak=1.2", "gates:peak=1.2"])  # the gates exchange units at one width
@pytest.mark.parametrize("when", ["before it follows", "after it followed"])
def test_a_grower_carries_states_over_its_steps(when: str, preset: str, tmp_path) -> None:
    """A loop as a user writes it, with a state carried from the first batch to the last, and over a checkpoint."""

    def start() -> tuple[nn.Module, optim.Optimizer, meristem.Grower]:
        torch.manual_seed(0)
        model = MAKERS["lstm"]()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        budget = meristem.Budget(params="50%")
        method = meristem.methods.parse_method(preset)
        given = {"budget": budget, "epochs": 6, "carried": 1, "method": method}
        return model, optimizer, meristem.Grower(model, optimizer, TOKENS, **given)

    def epoch(model: nn.Module, optimizer: optim.Optimizer, state: Any) -> Any:
        for _ in range(2):
            optimizer.zero_grad()
            logits, state = model(TOKENS, state)
            state = tree_map(torch.Tensor.detach, state)
            logits.square().mean().backward()
            optimizer.step()
        return state

    model, optimizer, grower = start()
    state, widths = None, set()
    for number in range(6):
        state = epoch(model, optimizer, state)
        grower.step()
        if when == "before it follows":
            grower.checkpoint(tmp_path / f"run{number}", state=state)
        state = grower.resize_state(state)
        widths.add(state[0].shape[-1])
        if when == "after it followed":
            grower.checkpoint(tmp_path / f"run{number}", state=state)
    assert len(widths) > 1
    again, optimizer, grower = start()
    kept = grower.resume(tmp_path / "run2")["state"]
    if when == "before it follows":
        kept = grower.resize_state(kept)
    for _ in range(3):
        kept = epoch(again, optimizer, kept)
        grower.step()
        kept = grower.resize_state(kept)
    assert all(torch.equal(one, two) for one, two in zip(kept, state, strict=True))
    assert all(
        np.array_equal(p.detach(), q.detach()) for p, q in zip(model.parameters(), again.parameters(), strict=True)
    )
