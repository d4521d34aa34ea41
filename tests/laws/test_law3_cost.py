"""Law 3. The closed-form cost equals torch's flop counter and ``numel``, before and after random plans.

Why: what a plan will cost must be known before it is carried out. The counter runs forward on the meta device, where
torch's own count is right. Fractional widths are expected widths; a count there must lie between its neighbours.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from helpers import build, go, random_target
from meristem import Live, count_macs, count_params
from zoo import ZOO


def counted_flops(model: nn.Module, inputs: Sequence[Any]) -> int:
    model = copy.deepcopy(model).eval().to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*(x.to("meta") for x in inputs))
    return counter.get_total_flops()


@pytest.mark.parametrize("name", ZOO)
def test_count_is_what_torch_counts(name: str, space_of) -> None:
    space = space_of(name)
    model, inputs = build(name, torch.float32)
    live = Live(model, space)
    assert live.widths == space.full
    rng = np.random.default_rng(7)
    # torch.einsum multiplies instead of contracting a dimension of size one, and torch counts no multiplications.
    least = {group: range(max(g.min_units, 1 + (name == "einsum"))) for group, g in space.groups.items()}
    for target in ({}, random_target(space, rng), {group: [] for group in space.groups}, random_target(space, rng)):
        go(live, {group: {*units, *least[group]} for group, units in target.items()})
        assert count_params(space, live.widths) == sum(p.numel() for p in model.parameters())
        assert 2 * count_macs(space, live.widths) == counted_flops(model, inputs)


@pytest.mark.parametrize("name", ZOO)
def test_fractional_widths_interpolate(name: str, space_of) -> None:
    """Rounding every width down gives no more, rounding up no less; and one group alone moves the cost smoothly."""
    space = space_of(name)
    rng = np.random.default_rng(11)
    widths = {group: rng.uniform(g.min_units, g.units) for group, g in space.groups.items()}
    below = {group: math.floor(width) for group, width in widths.items()}
    above = {group: math.ceil(width) for group, width in widths.items()}
    for count in (count_params, count_macs):
        assert count(space, below) <= count(space, widths) <= count(space, above)
        assert count(space, space.smallest) <= count(space, below)
        assert count(space, above) <= count(space, space.full) == count(space)
        for group in space.groups:
            nudged = {**widths, group: widths[group] + 1e-3}
            assert 0 <= count(space, nudged) - count(space, widths) < 1e-2 * count(space)


def test_shared_parameters_count_once(space_of) -> None:
    model, _ = build("gpt_tied")
    assert model.head.weight is model.tok.weight
    assert count_params(space_of("gpt_tied")) == sum(p.numel() for p in model.parameters())


def test_a_module_used_twice_computes_twice(space_of) -> None:
    """The siamese trunk runs on both inputs: its terms appear for both."""
    space = space_of("siamese")
    trunk = [term for term in space.terms if term.module == "trunk.a.conv"]
    assert len(trunk) == 2
