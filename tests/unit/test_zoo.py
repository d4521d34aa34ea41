"""The zoo itself: what every law relies on holds for every net."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

from zoo import ZOO, ZooNet

nets = pytest.mark.parametrize("net", ZOO.values(), ids=ZOO)


@nets
def test_every_parameter_receives_a_gradient(net: ZooNet) -> None:
    model, inputs = net.build()
    outputs = tree_leaves(model(*inputs))
    torch.manual_seed(1)
    sum((out * torch.randn_like(out)).sum() for out in outputs).backward()
    for name, param in model.named_parameters():
        assert param.grad is not None, name
        assert param.grad.isfinite().all(), name
        # A vector may rightly get zero: a key's bias under a softmax, a bias under a norm. A matrix may not.
        assert param.ndim < 2 or param.grad.abs().max() > 1e-6, name


@nets
def test_same_seed_same_net(net: ZooNet) -> None:
    (a, x), (b, y) = net.build(), net.build()
    for left, right in zip(tree_leaves(a(*x)), tree_leaves(b(*y)), strict=True):
        assert torch.equal(left, right)


@nets
def test_expectations_name_what_exists(net: ZooNet) -> None:
    model, _ = net.build()
    known = dict(model.named_modules()).keys() | dict(model.named_parameters()).keys()
    assert net.free | net.pinned <= known
    assert not net.free & net.pinned


def test_build_leaves_the_global_random_state() -> None:
    before = torch.get_rng_state()
    ZOO["plain"].build()
    assert torch.equal(before, torch.get_rng_state())
