"""States that run along time, and from batch to batch, are part of law 4; gates scale the path inside a layer, too.

Why: a hidden unit is read in many places, by itself and its neighbours at the next step among them. Over chunks of a
long sequence the small live network must be the masked full-size one in every chunk, whatever was carried into it, and
when units come and go between two chunks those that stay must find what they had, and those that come must find zero.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import meristem
from growing import PRESETS
from helpers import NOISE, RandomGates, assert_near, go, live_part, run
from meristem import Gates, Live, Space
from meristem.space.state_tensors import state_tensors
from meristem.testing import masked_reference
from nets.recurrent import Recurrent, Stateful, StatefulCell

NETS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: Stateful(nn.LSTM(4, 5, 2, dropout=0.5)),
    "gru": lambda: Stateful(nn.GRU(4, 5)),
    "rnn": lambda: Stateful(nn.RNN(4, 5, 2, nonlinearity="relu")),
    "bidirectional": lambda: Stateful(nn.GRU(4, 5, bidirectional=True)),
    "projected": lambda: Stateful(nn.LSTM(4, 8, proj_size=3)),
    "stacked": lambda: Stateful(nn.LSTM(4, 5), nn.LSTM(5, 6)),
    "tied": lambda: Stateful(nn.LSTM(4, 5), nn.LSTM(5, 4), tied=True),
    "lstm_cell": lambda: StatefulCell(nn.LSTMCell(4, 5)),
    "gru_cell": lambda: StatefulCell(nn.GRUCell(4, 5)),
    "rnn_cell": lambda: StatefulCell(nn.RNNCell(4, 5)),
}


def built(name: str) -> tuple[nn.Module, list[Tensor]]:
    """A net in double precision and in evaluation mode (dropout draws other numbers for other widths), and chunks."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return NETS[name]().double().eval(), list(torch.randint(11, (3, 2, 2)))


def live_state(live: Live, full: Any) -> Any:
    """What a small state must be: the live positions of a full-size one."""
    axes = {state.path: state.axes for state in live.space.states}
    leaves = [
        leaf[
            np.ix_(
                *[
                    live.positions(axis) if axis.parts else np.arange(size)
                    for axis, size in zip(axes[path], leaf.shape, strict=True)
                ]
            )
        ]
        for path, leaf in state_tensors(full)
    ]
    return tree_unflatten(leaves, tree_flatten(full)[1])


def target(space: Space, seed: int) -> dict[str, list[int]]:
    """A little more than half of the units of every group, so that two targets share some."""
    rng = np.random.default_rng(seed)
    return {
        name: sorted(rng.permutation(g.units)[: max(g.min_units, (g.units + 1) // 2)].tolist())
        for name, g in space.groups.items()
    }


def assert_chunk(live: Live, full: nn.Module, chunk: Tensor, states: list[Any], gates: RandomGates) -> list[Any]:
    """One chunk with the states of the live network and of the reference; the states that come out, detached."""
    small, large = states
    attached = gates.on(live)
    logits, small = live.model(chunk, small)
    attached.detach()
    form = tree_flatten(small)[1]
    reference = masked_reference(full, live.space, live.masks, (chunk, large), gates.scales())
    large = tree_unflatten(reference.outputs[1:], form)
    assert_near(logits, reference.outputs[0], 1e-9, "logits")
    for (path, got), (_, expected) in zip(state_tensors(small), state_tensors(live_state(live, large)), strict=True):
        assert_near(got, expected, 1e-9, path)
    live.model.zero_grad()
    seed = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1), dtype=logits.dtype)
    logits.backward(seed)
    mine = gates.take_gradients()
    reference.backward([seed, *(torch.zeros_like(out) for out in reference.outputs[1:])])
    for name, parameter in live.model.named_parameters():
        expected = live_part(reference.parameters[name].grad, live.space, name, live)
        assert_near(parameter.grad, expected, 1e-6, f"gradient of {name}", NOISE)
    for name, expected in gates.take_gradients().items():
        assert_near(mine[name], expected, 1e-6, f"gradient of the gates of {name}", NOISE)
    return tree_map(torch.Tensor.detach, [small, large])


@pytest.mark.parametrize("name", NETS)
def test_carried_states_are_those_of_the_masked_reference(name: str) -> None:
    """Three chunks and the first again; after the second the units change, and after the third, with the state."""
    full, chunks = built(name)
    space = meristem.trace(full, chunks[0], carried=1)
    live = Live(copy.deepcopy(full), space)
    gates = RandomGates(space)
    go(live, target(space, 0))
    live._carried_states.forget()
    states: list[Any] = [None, None]
    states = assert_chunk(live, full, chunks[0], states, gates)
    for seed, chunk in enumerate(chunks[1:], start=1):
        states = assert_chunk(live, full, chunk, states, gates)
        go(live, target(space, seed))
        # In the reference a unit that leaves is masked from now on; where it comes back it must find nothing.
        stayed = live_state(live, states[1])
        states[0] = live.resize_state(states[0])
        for (path, got), (_, expected) in zip(state_tensors(states[0]), state_tensors(stayed), strict=True):
            assert torch.equal(got != 0, expected != 0), path
            assert_near(got, expected, 1e-9, path)
        assert live.resize_state(states[0]) is states[0]
    assert_chunk(live, full, chunks[0], states, gates)


# --- gates --------------------------------------------------------------------------------------------------------

READERS = {  # for every net the weights that read a hidden unit, and for which group
    "lstm": ("layers.0", ["layers.0.weight_hh_l0", "layers.0.weight_ih_l1", "layers.0.weight_hh_l1", "head.weight"]),
    "gru": ("layers.0", ["layers.0.weight_hh_l0", "head.weight"]),
    "bidirectional": ("layers.0", ["layers.0.weight_hh_l0", "layers.0.weight_hh_l0_reverse", "head.weight"]),
    "stacked": ("layers.0", ["layers.0.weight_hh_l0", "layers.1.weight_ih_l0"]),
    "lstm_cell": ("cell", ["cell.weight_hh", "head.weight"]),
    # A cell of a projected LSTM is read by the projection alone; what the projection makes is read by the others.
    "projected": ("layers.0", ["layers.0.weight_hr_l0"]),
    "projected, its projection": ("layers.0:2", ["layers.0.weight_hh_l0", "head.weight"]),
}


@pytest.mark.parametrize("case", READERS)
def test_a_gate_is_a_factor_on_every_reader(case: str) -> None:
    """The recurrent path inside the layer included: the columns of the hidden unit, in all gates and directions."""
    name, (group, readers) = case.partition(",")[0], READERS[case]
    model, chunks = built(name)
    space = meristem.trace(model, chunks[0], carried=1)
    live = Live(model, space)
    go(live, {group: range(1, space.groups[group].units)})
    by_hand = copy.deepcopy(model)
    unit, value, width = 1, 0.3, live.widths[group]
    gate = torch.ones(width, dtype=torch.float64)
    gate[unit] = value
    gates = Gates(live, lambda asked: gate if asked == group else None)
    with torch.no_grad():
        for reader in readers:
            weight = by_hand.get_parameter(reader)
            weight[:, unit::width] *= value  # in every direction
        got, expected = (tree_flatten(net(chunks[0], net(chunks[1])[1]))[0] for net in (model, by_hand))
    gates.detach()
    for one, two in zip(got, expected, strict=True):
        assert_near(one, two, 1e-12)
    with torch.no_grad():
        assert not torch.allclose(model(chunks[0])[0], got[0])
    assert {slot.tensor for slot in space.slots if group in space.axes(slot.tensor)[slot.dim].groups} == set(readers)


# --- projections --------------------------------------------------------------------------------------------------


def test_a_projected_layer_stays_wider_than_its_projection() -> None:
    """Torch tells a projection by the two sizes being different, so a plan that could make them equal is refused."""
    model, chunks = built("projected")
    space = meristem.trace(model, chunks[0], carried=1)
    assert {name: (group.min_units, group.units) for name, group in space.groups.items()} == {
        "embed": (1, 4),
        "layers.0": (4, 8),
        "layers.0:2": (1, 3),
    }
    live = Live(model, space)
    with pytest.raises(meristem.MeristemError, match="would have 3; at least 4 of its 8 units must stay live"):
        live.plan({"layers.0": [0, 1, 2]})
    go(live, {name: range(group.min_units) for name, group in space.groups.items()})
    run(model, chunks[:1])


def test_no_method_goes_below() -> None:
    tokens = torch.zeros(2, 2, dtype=torch.long)
    space = meristem.trace(Recurrent(nn.LSTM(4, 8, proj_size=3), 3), tokens)
    for preset in PRESETS:
        model = Recurrent(nn.LSTM(4, 8, proj_size=3), 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        budget = meristem.Budget(params="60%")
        grower = meristem.Grower(model, optimizer, tokens, budget=budget, epochs=3, method=preset, space=space)
        for _ in range(3):
            optimizer.zero_grad()
            model(tokens).square().mean().backward()
            optimizer.step()
            assert grower.step()["widths"]["rnn"] >= 4, preset
        assert grower.widths["rnn"] >= 4, preset


def test_dropout_between_layers_does_not_matter_to_the_space() -> None:
    """In training mode it is drawn anew, so the laws look at it in evaluation mode; it trains at any width."""
    made = [Stateful(nn.LSTM(4, 5, 2, dropout=dropout)) for dropout in (0.0, 0.5)]
    plain, dropped = (meristem.trace(model, torch.zeros(2, 2, dtype=torch.long), carried=1) for model in made)
    assert plain.groups == dropped.groups
    assert plain.sites == dropped.sites
    live = Live(made[1].train(), dropped, start={"layers.0": [1, 3]})
    made[1](torch.zeros(2, 2, dtype=torch.long))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in live.model.parameters())
