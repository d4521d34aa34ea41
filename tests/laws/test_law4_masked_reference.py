"""Law 4. The live small network computes what a full-size masked reference computes, forward and gradients.

Why: resizing is only an economy. Whatever sequence of plans has led here, and whatever gates scale the readers, the
small model must be the full model with the dead units set to zero (a norm or a softmax across units runs across the
live ones). Of the nets with blocks that may be absent, some blocks are.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep import ALL_NETS
from helpers import RandomGates, assert_is_masked_reference, build, go, random_target, without_blocks
from meristem import Live

plans = st.lists(st.integers(0, 10_000), min_size=1, max_size=3)
nets = pytest.mark.parametrize("name", ALL_NETS)


@nets
@given(seeds=plans, training=st.booleans(), gated=st.booleans())
def test_live_is_the_masked_reference(name: str, space_of, seeds: list[int], training: bool, gated: bool) -> None:
    space = space_of(name)
    model, inputs = build(name)
    full = copy.deepcopy(model.train(training))
    live = Live(model, space)
    for seed in seeds:
        go(live, random_target(space, np.random.default_rng(seed)))
    assert_is_masked_reference(live, full, inputs, RandomGates(space, seeds[0]) if gated else None)


@nets
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_gates_on_the_smallest_networks(name: str, training: bool, space_of) -> None:
    """No block at all at full width; then one unit in nearly every group, where broadcasting could hide an error."""
    space = space_of(name)
    model, inputs = build(name)
    full = copy.deepcopy(model.train(training))
    live = Live(model, space)
    if space.blocks:
        go(live, without_blocks(space))
        assert_is_masked_reference(live, full, inputs, RandomGates(space))
    go(live, {group: range(g.units - g.min_units, g.units) for group, g in space.groups.items()})
    assert_is_masked_reference(live, full, inputs, RandomGates(space))
