"""Law 2. Grow then prune, and prune then restore, give back weights, statistics and optimizer state bit for bit.

Why: a unit that goes takes everything with it that training has given it, and a unit that comes does not touch the
others. The trip through the store is a copy, never arithmetic. It holds in the middle of training, when moments and
running statistics are full of values that no initialiser would produce. A block that may be absent is one more unit,
only a large one, so it holds for blocks as well, alone and together with units, whether an absent one is replaced by an
identity or dropped from its list.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from deep import DEEP
from helpers import (
    OPTIMIZERS,
    assert_same_bits,
    build,
    go,
    half,
    half_without_some_blocks,
    live_part,
    loss,
    random_target,
    run,
    snapshot,
    train,
    trained,
    whole,
    without_blocks,
)
from meristem import Live
from zoo import ZOO

kinds = pytest.mark.parametrize("kind", OPTIMIZERS)
cases = pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in ZOO for kind in OPTIMIZERS),
        *((name, kind) for name in DEEP for kind in ("sgd", "adamw_amsgrad")),
    ],
)


@cases
def test_prune_then_restore(name: str, kind: str, space_of) -> None:
    model, inputs = build(name, torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    live = Live(model, space_of(name), optimizer)
    modules = list(model.named_modules())
    train(model, optimizer, inputs, 2)
    before = snapshot(model, optimizer)
    rng = np.random.default_rng(5)
    go(live, random_target(live.space, rng))
    if live.space.blocks:
        go(live, without_blocks(live.space))
        assert len(live.tree.absent) == len(live.space.blocks)
    go(live, random_target(live.space, rng))
    go(live, whole(live.space))
    assert_same_bits(snapshot(model, optimizer), before)
    for (path, module), (old_path, old_module) in zip(model.named_modules(), modules, strict=True):
        assert path == old_path, "the modules are in another order"
        assert module is old_module, path


@cases
def test_grow_then_prune(name: str, kind: str, space_of) -> None:
    space = space_of(name)
    start = half_without_some_blocks(space)
    live, optimizer, _ = trained(name, space, kind, 2, start)
    model = live.model
    before = snapshot(model, optimizer)
    go(live, whole(space))
    go(live, start)
    assert_same_bits(snapshot(model, optimizer), before)


@kinds
def test_what_returns_after_others_trained_is_what_left(kind: str, space_of) -> None:
    """While a unit is away the rest trains on; the unit's rows, columns, statistics and moments wait unchanged."""
    space = space_of("resnet")
    live, optimizer, inputs = trained("resnet", space, kind, 2)
    model = live.model
    conv, norm = model.body[1].body[0].conv, model.body[1].body[0].bn
    taken = {
        "weight": conv.weight.detach()[3].clone(),
        "mean": norm.running_mean[3].clone(),
        **{key: v[3].clone() for key, v in optimizer.state[conv.weight].items() if v.dim() == 4},
    }
    go(live, {"body.1.body.0.conv": [0, 1, 2, 4, 5]})
    train(model, optimizer, inputs, 2)
    go(live, {"body.1.body.0.conv": range(6)})
    assert torch.equal(conv.weight.detach()[3], taken["weight"])
    assert torch.equal(norm.running_mean[3], taken["mean"])
    for key, value in optimizer.state[conv.weight].items():
        if value.dim() == 4:
            assert torch.equal(value[3], taken[key]), key


def test_crossing_groups_keep_the_last_value_that_lived(space_of) -> None:
    """A weight between two groups leaves with whichever of its two units leaves first, and is not overwritten after."""
    space = space_of("vgg")
    live, optimizer, inputs = trained("vgg", space, "sgd", 1)
    model = live.model
    corner = model.b.conv.weight.detach()[2, 3].clone()
    go(live, {"a.conv": [0, 1, 2, 4, 5]})
    train(model, optimizer, inputs, 1)
    go(live, {"b.conv": [0, 1, 3, 4, 5, 6, 7]})
    train(model, optimizer, inputs, 1)
    go(live, {"a.conv": range(6)})
    train(model, optimizer, inputs, 1)
    go(live, {"b.conv": range(8)})
    assert torch.equal(model.b.conv.weight.detach()[2, 3], corner)


def test_units_that_never_lived_come_from_the_built_model(space_of) -> None:
    """Growing late still gives the initial values, untouched by what was trained meanwhile."""
    space = space_of("plain")
    model, inputs = build("plain", torch.float32)
    built = model.body[1].conv.weight.detach().clone()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    live = Live(model, space, optimizer, start=half(space))
    train(model, optimizer, inputs, 3)
    go(live, {"body.1.conv": range(8)})
    full = live_part(built, space, "body.1.conv.weight", live)
    assert torch.equal(model.body[1].conv.weight.detach()[1::2], full[1::2])


# --- blocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "set_to_none"), [("sgd", True), ("adamw_amsgrad", False)])
@pytest.mark.parametrize("name", DEEP)
def test_an_absent_block_waits_while_the_rest_trains(name: str, kind: str, set_to_none: bool, space_of) -> None:
    """Weights, statistics, moments and counters of steps: nothing of it moves, whatever the user's loop does."""
    space = space_of(name)
    live, optimizer, inputs = trained(name, space, kind, 2)
    model = live.model
    group = list(space.blocks)[-1]
    path = space.blocks[group].path

    def of_block() -> dict[str, Tensor]:
        tensors = snapshot(model, optimizer)
        return {key: value for key, value in tensors.items() if f" {path}." in key}

    before, rest = of_block(), snapshot(model, optimizer)
    assert len(before) > 5
    go(live, without_blocks(space, group))
    assert not of_block()
    for _ in range(2):
        loss(run(model, inputs)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
    go(live, whole(space))
    assert_same_bits(of_block(), before)
    after = snapshot(model, optimizer)
    assert any(not torch.equal(after[key], value) for key, value in rest.items()), "the rest did not train"


def test_a_block_comes_back_in_the_mode_of_its_surroundings(space_of) -> None:
    space = space_of("deep_residual")
    model, _ = build("deep_residual", torch.float32)
    live = Live(model.train(), space)
    block = model.stages[0][1]
    block.bn1.eval()  # frozen by the user
    go(live, without_blocks(space))
    assert model.stages[0][1].training != model.stages[0][1].eval().training
    model.train()
    go(live, whole(space))
    assert model.stages[0][1] is block
    assert block.training
    assert not block.bn1.training, "what the user froze stays frozen"
    go(live, without_blocks(space))
    model.eval()
    go(live, whole(space))
    assert not any(module.training for module in model.modules())
