"""Law 1. Growing with zero outgoing weights leaves the function unchanged.

Why: a fresh unit changes the output only through whoever reads it. If every reader multiplies it by zero, nothing of it
arrives. Two kinds of groups are exempt, because there the unit also acts otherwise than through such a reader:

* ``across``: a norm, a mean or a softmax runs across the units, so a fresh unit moves the others' statistics;
* impure readers: the same dimension of a tensor both makes and reads the unit (a tied embedding), or the units are read
  by no stored weight at all (two activations are contracted, or the weight is computed from others). Zeroing would then
  also wipe out what makes the unit, or there is nothing to zero.

The sums now have extra terms that are exactly zero. A vectorised kernel may cut a longer sum into other pieces, so the
comparison allows the last bits of a double.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import assert_all_near, build, random_target, run
from meristem import Live, Space
from meristem.init import ZeroOutgoing
from meristem.space.space import Role
from zoo import ZOO


def readers_are_pure(space: Space, group: str) -> bool:
    sites = [site for site in space.sites if group in site.axis.groups]
    readers = [site for site in sites if Role.IN in site.roles]
    return bool(readers) and all(Role.OUT not in site.roles for site in readers)


def covered(space: Space) -> list[str]:
    return [name for name, group in space.groups.items() if not group.across and readers_are_pure(space, name)]


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
