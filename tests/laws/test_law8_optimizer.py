"""Law 8. After any plan every parameter receives a gradient and no optimizer slot is lost or reordered.

Why: the user's loop, scheduler and checkpoint know parameters by their place in the optimizer. A resized parameter must
sit where its predecessor sat, in the very same param group, with the moments of the units that survive. The parameters
of an absent block keep their places, too.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import optim

from deep import ALL_NETS, DEEP
from helpers import (
    OPTIMIZERS,
    build,
    go,
    half,
    live_part,
    loss,
    random_target,
    run,
    train,
    trained,
    whole,
    without_blocks,
)
from meristem import Live


def slots(live: Live, optimizer: optim.Optimizer) -> list[list[str]]:
    """The names of the parameters in every param group, in order, those of absent blocks included."""
    names = {id(live.tree.tensor(name)): name for name in live.space.tensors}
    return [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, optim.AdamW) for name in ALL_NETS), *((name, optim.SGD) for name in DEEP)]
)
@given(seeds=st.lists(st.integers(0, 10_000), min_size=1, max_size=3))
def test_gradients_and_slots(name: str, kind: type[optim.Optimizer], space_of, seeds: list[int]) -> None:
    model, inputs = build(name, torch.float32)
    vectors = [p for p in model.parameters() if p.dim() < 2]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    parts = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0, "lr": 1e-4}]
    optimizer = kind(parts, lr=1e-3, **({"momentum": 0.9} if kind is optim.SGD else {}))
    live = Live(model, space_of(name), optimizer)
    before, groups = slots(live, optimizer), list(optimizer.param_groups)
    assert sorted(key for keys in before for key in keys) == sorted(key for key, _ in model.named_parameters())
    train(model, optimizer, inputs, 1)
    for seed in seeds:
        go(live, random_target(live.space, np.random.default_rng(seed)))
        assert slots(live, optimizer) == before
        assert all(now is then for now, then in zip(optimizer.param_groups, groups, strict=True))
        assert set(optimizer.state) == {p for group in optimizer.param_groups for p in group["params"]}
        assert set(optimizer.state) >= set(model.parameters())
        optimizer.zero_grad()
        loss(run(model, inputs)).backward()
        for key, parameter in model.named_parameters():
            assert parameter.is_leaf, key
            assert parameter.grad is not None, key
            assert parameter.grad.shape == parameter.shape, key
            assert parameter.grad.isfinite().all(), key
        optimizer.step()
        for key, parameter in model.named_parameters():
            assert parameter.isfinite().all(), key
            assert all(v.shape in ((), parameter.shape) for v in optimizer.state[parameter].values()), key


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_survivors_keep_their_state(kind: str, space_of) -> None:
    """What stays is not touched; counters of steps are kept; what comes in fresh has finite, sensible moments."""
    space = space_of("resnet")
    live, optimizer, _ = trained("resnet", space, kind, 2)
    model = live.model
    full = {
        name: {key: value.clone() for key, value in optimizer.state[parameter].items()}
        for name, parameter in model.named_parameters()
    }
    go(live, half(space))
    for name, parameter in model.named_parameters():
        now = optimizer.state[parameter]
        assert now.keys() == full[name].keys()
        for key, value in full[name].items():
            expected = value if value.dim() == 0 else live_part(value, space, name, live)
            assert torch.equal(now[key], expected), (name, key)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_fresh_units_start_with_neutral_state(kind: str, space_of) -> None:
    """First moments start at zero; second moments at the mean of the others, so that the first step is not a leap."""
    space = space_of("plain")
    live, optimizer, _ = trained("plain", space, kind, 3, half(space))
    model = live.model
    weight = model.body[0].conv.weight
    before = {key: value.clone() for key, value in optimizer.state[weight].items()}
    go(live, whole(space))
    after = optimizer.state[model.body[0].conv.weight]
    for key in ("momentum_buffer", "exp_avg", "grad_avg"):
        if key in after:
            assert (after[key][1::2] == 0).all(), key
    for key in ("exp_avg_sq", "max_exp_avg_sq", "square_avg"):
        if key in after:
            torch.testing.assert_close(after[key][1::2], before[key].mean().expand_as(after[key][1::2]))
            assert torch.equal(after[key][::2], before[key]), key


@pytest.mark.parametrize(("kind", "together"), [("adam", False), ("adamw_amsgrad", True), ("rmsprop_centered", True)])
def test_units_that_grow_in_an_absent_block_have_sensible_moments(kind: str, together: bool, space_of) -> None:
    """A unit that never lived starts with the mean of the others' second moments, also where the others are away."""
    space = space_of("deep_residual")
    live, optimizer, inputs = trained("deep_residual", space, kind, 3, half(space))
    model = live.model
    group = list(space.blocks)[-1]
    go(live, without_blocks(space, group))
    train(model, optimizer, inputs, 1)
    if not together:
        inside = [name for name, block in space.enclosing_block.items() if block == group]
        go(live, {name: range(space.groups[name].units) for name in inside})
    go(live, whole(space))
    for parameter in model.parameters():
        for value in optimizer.state[parameter].values():
            assert value.isfinite().all()
            assert not value.dim() or value.shape == parameter.shape
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train(model, optimizer, inputs, 1)
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
        assert float((parameter - before[name]).detach().abs().max()) < 0.2, name


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
        lambda optimizer: optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8),
    ],
    ids=["StepLR", "OneCycleLR"],
)
def test_schedulers_keep_working(schedule, space_of) -> None:
    """A scheduler holds the optimizer's param groups: its learning rates must reach the resized parameters."""
    space = space_of("plain")
    rates = []
    for resize in (False, True):
        model, inputs = build("plain", torch.float32)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = schedule(optimizer)
        live = Live(model, space, optimizer)
        seen = []
        for epoch in range(4):
            train(model, optimizer, inputs, 1)
            scheduler.step()
            if resize:
                go(live, half(space) if epoch % 2 == 0 else whole(space))
            group = optimizer.param_groups[0]
            seen.append((group["lr"], group["momentum"]))
        rates.append(seen)
    assert rates[0] == rates[1]
    before = model.head.weight.detach().clone()
    train(model, optimizer, inputs, 1)
    assert not torch.equal(model.head.weight, before)


def test_optimizer_checkpoint_fits_by_position(space_of) -> None:
    """The state dict is keyed by position: one saved after a plan loads into an optimizer of the exported model."""
    import meristem

    space = space_of("resnet")
    live, optimizer, inputs = trained("resnet", space, "adam", 2)
    model = live.model
    go(live, half(space))
    plain = meristem.export(live)
    again = OPTIMIZERS["adam"](plain.parameters())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, inputs, 2)
    train(plain, again, inputs, 2)
    for (name, mine), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs), name
