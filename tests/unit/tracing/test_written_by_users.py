"""Networks as people write them: most of them is free, and what is left computes what the masked network does."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import meristem
from helpers import assert_is_masked_reference, go, random_target
from nets.written_by_users import NETWORKS


@pytest.mark.parametrize("name", NETWORKS)
def test_free_and_exact(name: str) -> None:
    make, inputs, least = NETWORKS[name]
    torch.manual_seed(0)
    model = make().double().eval()
    inputs = tuple(value.double() if value.is_floating_point() else value for value in inputs)
    space = meristem.trace(model, inputs)
    assert space.free_params_frac > least, space
    full, live = copy.deepcopy(model), meristem.Live(model, space)
    for seed in range(3):
        go(live, random_target(space, np.random.default_rng(seed)))
        assert meristem.count_params(space, live.widths) == sum(p.numel() for p in model.parameters())
        assert_is_masked_reference(live, full, inputs)
