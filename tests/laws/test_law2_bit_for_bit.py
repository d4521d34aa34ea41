"""Law 2. Grow then detach, and detach then recall, restore weights, statistics and optimizer state bit for bit.

Why: a unit that goes takes everything with it that training has given it, and a unit that comes does not touch the
others. The trip through the store is a copy, never arithmetic. It holds in the middle of training, when moments and
running statistics are full of values that no initialiser would produce.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import OPTIMIZERS, assert_same_bits, build, go, half, live_part, random_target, snapshot, train, whole
from meristem import Live
from zoo import ZOO

kinds = pytest.mark.parametrize("kind", OPTIMIZERS)


@kinds
@pytest.mark.parametrize("name", ZOO)
def test_detach_then_recall(name: str, kind: str, space_of) -> None:
    model, inputs = build(name, torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    live = Live(model, space_of(name), optimizer)
    train(model, optimizer, inputs, 2)
    before = snapshot(model, optimizer)
    rng = np.random.default_rng(5)
    go(live, random_target(live.space, rng))
    go(live, random_target(live.space, rng))
    go(live, whole(live.space))
    assert_same_bits(snapshot(model, optimizer), before)


@kinds
@pytest.mark.parametrize("name", ZOO)
def test_grow_then_detach(name: str, kind: str, space_of) -> None:
    space = space_of(name)
    model, inputs = build(name, torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    live = Live(model, space, optimizer, start=half(space))
    train(model, optimizer, inputs, 2)
    before = snapshot(model, optimizer)
    go(live, whole(space))
    go(live, half(space))
    assert_same_bits(snapshot(model, optimizer), before)


@kinds
def test_what_returns_after_others_trained_is_what_left(kind: str, space_of) -> None:
    """While a unit is away the rest trains on; the unit's rows, columns, statistics and moments wait unchanged."""
    space = space_of("resnet")
    model, inputs = build("resnet", torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    live = Live(model, space, optimizer)
    train(model, optimizer, inputs, 2)
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
    model, inputs = build("vgg", torch.float32)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    live = Live(model, space, optimizer)
    train(model, optimizer, inputs, 1)
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
