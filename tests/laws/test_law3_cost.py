"""Law 3. The closed-form cost equals torch's flop counter and ``numel``, before and after random plans.

Why: what a plan will cost must be known before it is carried out. The counter runs forward on the meta device, where
torch's own count is right. A block owns every term of its cost: absent, it costs nothing. Fractional widths are
expected widths; a count there must lie between its neighbours.
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

from deep import ALL_NETS
from helpers import build, go, random_target, whole, without_blocks
from meristem import Live, count_macs, count_params

aten = torch.ops.aten
NOT_COUNTED_BY_TORCH = {  # flops by the shapes of the arguments
    aten._trilinear: lambda one, form, two, *_, **__: 2 * one[0] * math.prod(form),
    aten._cdist_forward: lambda rows, others, *_, **__: 2 * math.prod(rows) * others[-2],
}
NOT_ON_META = {"packed_lstm", "packed_gru", "rounded"}  # torch has no kernel there for one of their operations


def counted_flops(model: nn.Module, inputs: Sequence[Any], device: str = "meta") -> int:
    model = copy.deepcopy(model).eval().to(device)
    with FlopCounterMode(display=False, custom_mapping=NOT_COUNTED_BY_TORCH) as counter, torch.no_grad():
        model(*(x.to(device) for x in inputs))
    return counter.get_total_flops()


@pytest.mark.parametrize("name", ALL_NETS)
def test_count_is_what_torch_counts(name: str, space_of) -> None:
    space = space_of(name)
    model, inputs = build(name, torch.float32)
    live = Live(model, space)
    assert live.widths == space.full
    rng = np.random.default_rng(7)
    # torch.einsum multiplies instead of contracting a dimension of size one, and torch counts no multiplications.
    least = {group: range(g.min_units + (name in ("einsum", "fourier"))) for group, g in space.groups.items()}
    for target in (
        {},
        random_target(space, rng),
        least,
        whole(space) | without_blocks(space),
        random_target(space, rng),
    ):
        go(live, {group: {*units, *least[group]} for group, units in target.items()})
        assert count_params(space, live.widths) == sum(p.numel() for p in model.parameters())
        device = "cpu" if name in NOT_ON_META else "meta"
        assert 2 * count_macs(space, live.widths) == counted_flops(model, inputs, device)
        kept = sum(live.tree.tensor(key).numel() for key, tensor in space.tensors.items() if tensor.is_parameter)
        assert count_params(space, live.widths) == kept, "something of an absent block is left"


@pytest.mark.parametrize("name", ALL_NETS)
def test_fractional_widths_interpolate(name: str, space_of) -> None:
    """Rounding every width down gives no more, rounding up no less; and one group alone moves the cost smoothly.

    Half a block costs half of it, and the units inside a block that is absent cost nothing.
    """
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
        for block in space.blocks:
            absent, quarter, present = (count(space, {**widths, block: share}) for share in (0.0, 0.25, 1.0))
            assert quarter == pytest.approx(0.75 * absent + 0.25 * present)
            assert absent < present
            for inner in [group for group, owner in space.enclosing_block.items() if owner == block]:
                assert count(space, {**widths, block: 0.0, inner: 1.0}) == absent


def test_shared_parameters_count_once(space_of) -> None:
    model, _ = build("gpt_tied")
    assert model.head.weight is model.tok.weight
    assert count_params(space_of("gpt_tied")) == sum(p.numel() for p in model.parameters())


def test_a_module_used_twice_computes_twice(space_of) -> None:
    """The siamese trunk runs on both inputs: its terms appear for both."""
    space = space_of("siamese")
    trunk = [term for term in space.terms if term.module == "trunk.a.conv"]
    assert len(trunk) == 2
