"""Rules for fresh units: pure functions, and what they promise about a real model."""

from __future__ import annotations

import copy

import pytest
import torch

import meristem
from helpers import assert_all_near, build, run
from meristem import Live
from meristem.surgery.fresh import AsBuilt, VarianceTransfer, ZeroOutgoing

OLD, FRESH = torch.arange(1.0, 5.0).view(2, 2), torch.arange(5.0, 11.0).view(3, 2)


@pytest.mark.parametrize("rule", [AsBuilt(), ZeroOutgoing(), VarianceTransfer()])
def test_rules_are_pure(rule) -> None:
    """Nothing that is passed in changes, shapes are kept."""
    old, fresh = OLD.clone(), FRESH.clone()
    assert rule.incoming(fresh).shape == fresh.shape
    read_old, read_fresh = rule.outgoing(old, fresh)
    assert (read_old.shape, read_fresh.shape) == (old.shape, fresh.shape)
    assert torch.equal(old, OLD)
    assert torch.equal(fresh, FRESH)


def test_as_built() -> None:
    assert torch.equal(AsBuilt().incoming(FRESH), FRESH)
    old, fresh = AsBuilt().outgoing(OLD, FRESH)
    assert torch.equal(old, OLD)
    assert torch.equal(fresh, FRESH)


def test_zero_outgoing() -> None:
    assert torch.equal(ZeroOutgoing().incoming(FRESH), FRESH)
    old, fresh = ZeroOutgoing().outgoing(OLD, FRESH)
    assert torch.equal(old, OLD)
    assert not fresh.any()


def test_variance_transfer() -> None:
    """The second of a pair is made like the first and read with the opposite sign; an odd one is not read at all."""
    made = VarianceTransfer().incoming(FRESH)
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[2], FRESH[2])
    old, fresh = VarianceTransfer().outgoing(OLD, FRESH)
    torch.testing.assert_close(old, OLD * (2 / 5) ** 0.5)
    assert torch.equal(fresh[0], -fresh[1])
    assert not fresh[2].any()


def test_as_built_is_the_default() -> None:
    model, inputs = build("mlp")
    live = Live(model, meristem.trace(model, inputs))
    assert live.fresh == AsBuilt()


@pytest.mark.parametrize(
    ("name", "group", "grown"),
    [
        ("plain", "body.1.conv", 2),
        ("mlp", "b", 2),  # a bias goes along with its unit
        ("vgg", "b.conv", 2),  # a unit is read by several columns
        ("lstm_lm", "rnn", 3),  # an odd number, and four rows a unit
    ],
)
def test_variance_transfer_pairs_cancel(name: str, group: str, grown: int, space_of) -> None:
    """Fresh pairs add nothing: the grown network is the old one with its reading weights scaled by sqrt(old / new)."""
    model, inputs = build(name)
    space = space_of(name)
    live = Live(model.eval(), space, start={group: range(2)}, fresh=VarianceTransfer())
    expected = copy.deepcopy(model)
    with torch.no_grad():
        for slot in space.slots:
            if group in space.axes(slot.tensor)[slot.dim].groups:
                expected.get_parameter(slot.tensor).mul_((2 / (2 + grown)) ** 0.5)
        live.apply(live.plan({group: range(2 + grown)}))
        assert_all_near(run(model, inputs), run(expected, inputs), 1e-12)
