"""Blocks that have never lived take no memory, and start like one that is built alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deep import DEEP
from helpers import OPTIMIZERS, build, go, train, whole
from meristem import Live, Space

SMALL = pytest.mark.parametrize("name", ["deep_residual", "deep_loop", "deep_encoder"])


def shallow(space: Space) -> dict[str, list[int]]:
    """Everything is live but the blocks."""
    return whole(space) | {group: [] for group in space.blocks}


def parameters_in(space: Space, path: str) -> list[str]:
    return [name for name, known in space.tensors.items() if known.is_parameter and name.startswith(f"{path}.")]


def stages_of_several(space: Space) -> list[list[str]]:
    """The paths of the blocks of each stage that has more than one."""
    return [[block.path for block in stage.blocks] for stage in space.stages if len(stage.blocks) > 1]


def kept(live: Live) -> int:
    state = live._store.state_dict()
    return sum(math.prod(home.shape) for part in ("homes", "initial") for home in state[part].values())


@SMALL
def test_what_never_lived_takes_no_memory(name: str, space_of) -> None:
    """Of alike blocks one keeps its initial tensors, for itself and for the others."""
    space = space_of(name)
    live = Live(build(name)[0], space, start=shallow(space))
    homes = live._store.state_dict()["homes"]
    for first, *others in stages_of_several(space):
        assert all(tensor in homes for tensor in parameters_in(space, first))
        for path in others:
            assert parameters_in(space, path)
            assert not any(tensor in homes for tensor in parameters_in(space, path))
            assert all(live.tree.tensor(tensor).numel() == 0 for tensor in parameters_in(space, path))


def test_many_blocks_take_no_more_than_a_few(space_of) -> None:
    """The point of it: a deep model that starts shallow keeps as much as a shallow one, and one block more."""
    import meristem
    from meristem_bench.models.depth_starts import basic3_resnet

    sizes = []
    for blocks in (2, 3, 8):
        model = basic3_resnet((1, 1, blocks), width=4)
        space = meristem.trace(model, torch.zeros(1, 3, 8, 8), depth=True)
        live = Live(model, space, start=shallow(space))
        sizes.append(kept(live))
    statistics = 4 * 16  # of both norms of a block
    assert sizes[1] - sizes[0] < 1.1 * math.prod((2, 16, 16, 3, 3)) + statistics
    assert sizes[2] - sizes[1] <= 5 * statistics


@SMALL
def test_a_grown_block_has_the_distribution_of_its_sibling(name: str, space_of) -> None:
    space = space_of(name)
    model, _ = build(name)
    built = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
    live = Live(model, space, start=shallow(space))
    go(live, whole(space))
    for first, *others in stages_of_several(space):
        assert all(torch.equal(live.tree.tensor(own), built[own]) for own in parameters_in(space, first))
        for path in others:
            moved = 0
            for own in parameters_in(space, path):
                like = built[first + own[len(path) :]]
                got = live.tree.tensor(own).detach()
                assert torch.equal(got.flatten().sort().values, like.flatten().sort().values), own
                moved += not torch.equal(got, like)
            assert moved, "every block would start the same"


def test_what_is_orthogonal_stays_so(space_of) -> None:
    space = space_of("deep_loop")
    model, _ = build("deep_loop")
    for block in model.blocks:
        nn.init.orthogonal_(block.mlp.up.weight)
    live = Live(model, space, start=shallow(space))
    go(live, whole(space))
    for block in model.blocks:
        weight = block.mlp.up.weight.detach()
        torch.testing.assert_close(weight.T @ weight, torch.eye(8, dtype=weight.dtype))


@SMALL
def test_buffers_and_frozen_parameters_are_the_model_s_own(name: str, space_of) -> None:
    """A causal mask with its rows in another order would look ahead; what is not trained is not made up."""
    space = space_of(name)
    model, _ = build(name)
    for path, parameter in model.named_parameters():
        if path.endswith(("norm2.weight", "bn2.weight")):
            with torch.no_grad():
                parameter.copy_(torch.linspace(0.5, 1.5, len(parameter)) * sum(map(ord, path)))
            parameter.requires_grad_(False)
    built = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
    live = Live(model, space, start=shallow(space))
    go(live, whole(space))
    for key, buffer in model.named_buffers():
        assert torch.equal(buffer, built[key]), key
    for key, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert torch.equal(parameter, built[key]), key


@SMALL
def test_it_is_the_same_every_time_and_whatever_has_happened_since(name: str, space_of) -> None:
    """Training the sibling, or growing in another order, changes nothing of what a block starts with."""
    space, found = space_of(name), list[dict[str, Tensor]]()
    groups = [group for stage in space.stages for group in [block.group for block in stage.blocks]]
    for order, steps in ((groups, 0), (groups[::-1], 2)):
        model, inputs = build(name, torch.float32)
        optimizer = OPTIMIZERS["adam"](model.parameters())
        live = Live(model, space, optimizer, start=shallow(space))
        started = {}
        for group in order:
            go(live, {group: [0]})
            path = space.blocks[group].path
            started |= {key: live.tree.tensor(key).detach().clone() for key in parameters_in(space, path)}
            train(model, optimizer, inputs, steps)
        found.append(started)
    assert found[0].keys() == found[1].keys()
    for key, value in found[0].items():
        assert torch.equal(value, found[1][key]), key


@pytest.mark.parametrize("name", ["deep_residual", "deep_encoder"])
def test_it_survives_being_kept(name: str, space_of) -> None:
    """A live model restored in a model of other weights grows the same blocks."""
    space = space_of(name)
    live = Live(build(name)[0], space, start=shallow(space))
    other, _ = DEEP[name].build(seed=9)
    twin = Live(other.to(torch.float64), space)
    twin.load_state_dict(live.state_dict())
    for each in (live, twin):
        go(each, whole(space))
    mine, theirs = live.model.state_dict(), twin.model.state_dict()
    assert list(mine) == list(theirs)
    for key, value in mine.items():
        assert torch.equal(value, theirs[key]), key


def test_a_block_that_left_comes_back_as_itself(space_of) -> None:
    """Only what never lived is made up: once grown, a block has a home of its own."""
    space = space_of("deep_residual")
    model, inputs = build("deep_residual", torch.float32)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    live = Live(model, space, optimizer, start=shallow(space))
    go(live, whole(space))
    train(model, optimizer, inputs, 2)
    weight = model.stages[0][2].conv1.weight.detach().clone()
    go(live, shallow(space))
    train(model, optimizer, inputs, 2)
    go(live, whole(space))
    assert torch.equal(model.stages[0][2].conv1.weight, weight)


def test_partly_grown_the_rest_comes_from_the_same_home(space_of) -> None:
    """A block that comes in narrow and widens later ends as one that came in at full width."""
    space = space_of("deep_residual")
    found = []
    for narrow in (True, False):
        live = Live(build("deep_residual")[0], space, start=shallow(space))
        if narrow:
            go(live, {group: [g.units - 1] for group, g in space.groups.items() if g.min_units})
            go(live, {group: [0] for group in space.blocks})
        go(live, whole(space))
        found.append(live.model.state_dict())
    for key, value in found[0].items():
        assert torch.equal(value, found[1][key]), key


def test_blocks_that_differ_keep_their_own(space_of) -> None:
    """Other shapes, or another class: nothing is shared between stages."""
    space = space_of("deep_plain")
    model, _ = build("deep_plain")
    built = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
    live = Live(model, space, start=shallow(space))
    go(live, whole(space))
    alone = [stage.blocks[0].path for stage in space.stages]
    assert np.unique(alone).size == 3
    for path in alone:
        for key in parameters_in(space, path):
            assert torch.equal(live.tree.tensor(key), built[key]), key


def test_what_differs_from_gate_to_gate_stays_in_its_gate() -> None:
    """Forget gates that start open: the channels of a block that is made like another change places inside a gate."""
    import meristem

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(6, 6, batch_first=True)
            with torch.no_grad():
                self.lstm.bias_ih_l0.zero_()[6:12] = 1

        def forward(self, x: Tensor) -> Tensor:
            return x + self.lstm(x)[0]  # type: ignore[no-any-return]

    model = nn.Sequential(nn.Linear(3, 6), nn.Sequential(*(Layer() for _ in range(4))), nn.Linear(6, 2))
    space = meristem.trace(model, torch.randn(2, 5, 3), depth=True)
    live = Live(model, space, start=shallow(space))
    go(live, whole(space))
    for layer in model[1]:  # type: ignore[attr-defined]
        assert layer.lstm.bias_ih_l0.view(4, 6).sum(1).tolist() == [0, 6, 0, 0]
