"""Law 1. Growing with zero outgoing weights leaves the function unchanged.

Why: a fresh unit changes the output only through whoever reads it. If every reader multiplies it by zero, nothing of it
arrives. Two kinds of groups are exempt, because there the unit also acts otherwise than through such a reader:

* ``mixes_units``: a norm, a mean or a softmax runs across the units, so a fresh unit moves the others' statistics;
* impure readers: the same dimension of a tensor both makes and reads the unit (a tied embedding), or the units are read
  by no stored weight at all (two activations are contracted, or the weight is computed from others). Zeroing would then
  also wipe out what makes the unit, or there is nothing to zero.

A block with zero outgoing weights adds nothing to the stream it passes on: growing it leaves the function unchanged
exactly, bit for bit, since no sum becomes longer.

The sums now have extra terms that are exactly zero. A vectorised kernel may cut a longer sum into other pieces, so the
comparison allows the last bits of a double.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from helpers import assert_all_near, build, loss, random_target, run
from meristem import Live, Space
from meristem.space.space import Role
from meristem.surgery.fresh import ZeroOutgoing
from zoo import ZOO

# What each block adds to the stream comes last out of these. Plain blocks add nothing: they replace what goes in.
OUTGOING = {
    "deep_residual": ("bn2",),
    "deep_preactivation": ("conv2",),
    "deep_bottleneck": ("body.7",),
    "deep_loop": ("attention.proj", "mlp.down"),
    "deep_masked": ("attention.proj", "mlp.down"),
    "deep_tuples": ("mlp.down",),
    "deep_mixer": ("mix_tokens.inner.down", "mix_channels.down"),
}


def readers_are_pure(space: Space, group: str) -> bool:
    sites = [site for site in space.sites if group in site.axis.groups]
    readers = [site for site in sites if Role.IN in site.roles]
    return bool(readers) and all(Role.OUT not in site.roles for site in readers)


def covered(space: Space) -> list[str]:
    return [name for name, group in space.groups.items() if not group.mixes_units and readers_are_pure(space, name)]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", ZOO)
def test_growth_is_not_seen(name: str, training: bool, space_of) -> None:
    space = space_of(name)
    groups = covered(space)
    model, inputs = build(name)
    model.train(training)
    rng = np.random.default_rng(3)
    start = random_target(space, rng)
    live = Live(model, space, start={group: start[group] for group in groups}, fresh=ZeroOutgoing())
    with torch.no_grad():
        before = [out.clone() for out in run(model, inputs)]
        for grown in (random_target(space, rng), {group: range(space.groups[group].units) for group in groups}):
            live.apply(live.plan({group: {*start[group], *grown[group]} for group in groups}))
            assert_all_near(run(model, inputs), before, 1e-12)
    assert live.widths == space.full


def test_most_groups_of_the_zoo_are_covered(space_of) -> None:
    """The exemptions are exceptions: the law must not become empty unnoticed."""
    total = sum(len(space_of(name).groups) for name in ZOO)
    assert sum(len(covered(space_of(name))) for name in ZOO) > 0.8 * total


def test_fresh_units_are_not_stuck_at_zero() -> None:
    """A zero is read, not made: the fresh unit's own weights are the built ones and its reader gets a gradient."""
    import meristem

    model, inputs = build("mlp")
    built = model.a.weight.detach().clone()
    space = meristem.trace(model, inputs)
    live = Live(model, space, start={"a": [0, 1]}, fresh=ZeroOutgoing())
    live.apply(live.plan({"a": range(8)}))
    assert torch.equal(model.a.weight, built)
    assert (model.b.weight[:, 2:] == 0).all()
    model(*inputs).sum().backward()
    assert (model.b.weight.grad[:, 2:] != 0).any()


# --- blocks ---


def silent(name: str, space: Space) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A net of the zoo whose blocks all have zeros for outgoing weights."""
    model, inputs = build(name, torch.float32)
    with torch.no_grad():
        for block in space.blocks.values():
            for path in OUTGOING[name]:
                for parameter in model.get_submodule(f"{block.path}.{path}").parameters():
                    parameter.zero_()
    return model, inputs


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", OUTGOING)
def test_a_block_that_is_grown_is_not_seen(name: str, training: bool, space_of) -> None:
    """At half width, the blocks come in one after the other, those that never lived as siblings of others too."""
    space = space_of(name)
    model, inputs = silent(name, space)
    model.train(training)
    start = {group: [] if group in space.blocks else range((g.units + 1) // 2) for group, g in space.groups.items()}
    live = Live(model, space, start=start, fresh=ZeroOutgoing())
    with torch.no_grad():
        before = [out.clone() for out in run(model, inputs)]
        for group in space.blocks:
            live.apply(live.plan({group: [0]}))
            for mine, expected in zip(run(model, inputs), before, strict=True):
                assert torch.equal(mine, expected), group
    assert not live.tree.absent


@pytest.mark.parametrize("name", OUTGOING)
def test_a_block_that_is_grown_is_not_stuck_at_zero(name: str, space_of) -> None:
    space = space_of(name)
    model, inputs = silent(name, space)
    live = Live(model, space, start={group: [] for group in space.blocks}, fresh=ZeroOutgoing())
    live.apply(live.plan({group: [0] for group in space.blocks}))
    loss(run(model, inputs)).backward()
    for block in space.blocks.values():
        for path in OUTGOING[name]:
            found = [parameter.grad for parameter in model.get_submodule(f"{block.path}.{path}").parameters()]
            assert any(gradient.any() for gradient in found), block.path
