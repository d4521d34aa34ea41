"""Pulls read from weights and gradients equal the gradients of real gates, times the gates, on every net of the zoo."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import assert_near, build, go, loss, random_target, run, whole
from meristem import Gates, Live
from meristem.gating.kinds import GatePlacement
from meristem.gating.placement import gate_slots
from meristem.gating.pulls import Pulls
from meristem.space.space import Slot
from zoo import ZOO

SINGLE = 3e-6  # the sums are handed on in single precision


class Trainable:
    """Gates as leaves of autograd, for the units that are live now: all 1, or random between 0.3 and 1."""

    def __init__(self, live: Live, ones: bool) -> None:
        maker = torch.Generator().manual_seed(1)
        self.values = {
            name: (
                torch.ones(width, dtype=torch.float64)
                if ones
                else 0.3 + 0.7 * torch.rand(width, generator=maker, dtype=torch.float64)
            ).requires_grad_()
            for name, width in live.widths.items()
        }

    def pulls(self) -> Tensor:
        """g * dL/dg, group after group; a gate that nothing reads has no gradient and no pull."""
        return torch.cat(
            [(g * (torch.zeros_like(g) if g.grad is None else g.grad)).detach() for g in self.values.values()]
        )


def backward(live: Live, inputs: tuple[Tensor, ...]) -> None:
    """The gradient of a loss in which every output matters differently."""
    maker = torch.Generator().manual_seed(2)
    outputs = run(live.model, inputs)
    torch.autograd.backward(outputs, [torch.randn(out.shape, generator=maker, dtype=out.dtype) for out in outputs])


def compare(live: Live, pulls: Pulls, gates: Trainable, inputs: tuple[Tensor, ...], slots: Sequence[Slot]) -> None:
    live.model.zero_grad()
    attached = Gates(live, gates.values.__getitem__, slots)
    backward(live, inputs)
    attached.detach()
    found = pulls()
    assert found.dtype == torch.float32
    assert_near(found.double(), gates.pulls(), SINGLE, "pulls", 1e-8)


@pytest.mark.parametrize("ones", [True, False], ids=["ones", "random"])
@pytest.mark.parametrize("name", ZOO)
def test_pulls_are_the_gradients_of_gates(name: str, ones: bool, space_of) -> None:
    """dL/dw of a weight that is used as w g is g dL/d(w g), so sum(w dL/dw) is g dL/dg: for gates of value 1, which
    need not be there at all, and for others; at full and at random widths, with one object that sees them all."""
    space = space_of(name)
    model, inputs = build(name)
    live = Live(model, space)
    pulls = Pulls(live)
    for target in (whole(space), random_target(space, np.random.default_rng(4))):
        go(live, target)
        gates = Trainable(live, ones)
        compare(live, pulls, gates, inputs, space.slots)
        if ones:  # the same without any gate in the forward pass
            model.zero_grad()
            backward(live, inputs)
            assert_near(pulls().double(), gates.pulls(), SINGLE, "pulls without gates", 1e-8)


@pytest.mark.parametrize("name", ZOO)
def test_pulls_where_units_are_made(name: str, space_of) -> None:
    """The same for gates on the weights and biases that make units."""
    space = space_of(name)
    model, inputs = build(name)
    live = Live(model, space)
    go(live, random_target(space, np.random.default_rng(4)))
    slots = gate_slots(space, GatePlacement.FILTER)
    compare(live, Pulls(live, slots), Trainable(live, ones=False), inputs, slots)


@pytest.mark.parametrize("name", ["resnet", "own_masks", "lstm_lm", "attention_matmul"])
def test_something_pulls(name: str, space_of) -> None:
    """The comparison above is not one of zeros: a unit that is read has a pull."""
    model, inputs = build(name)
    live = Live(model, space_of(name))
    backward(live, inputs)
    assert (Pulls(live)() != 0).float().mean() > 0.8


def test_accumulated_gradients_add_up(space_of) -> None:
    model, inputs = build("plain")
    live = Live(model.eval(), space_of("plain"))
    found = []
    for part in (inputs[0][:1], inputs[0][1:]):
        model.zero_grad()
        run(model, (part,))[0].square().sum().backward()
        found.append(Pulls(live)())
    model.zero_grad()
    for part in (inputs[0][:1], inputs[0][1:]):
        run(model, (part,))[0].square().sum().backward()
    assert_near(Pulls(live)(), found[0] + found[1], 1e-6)


def test_clipped_gradients_pull_less(space_of) -> None:
    """What the user does to gradients is done to the pulls."""
    model, inputs = build("plain")
    live = Live(model, space_of("plain"))
    loss(run(model, inputs)).backward()
    before = Pulls(live)()
    for parameter in model.parameters():
        parameter.grad.mul_(0.25)
    assert torch.equal(Pulls(live)(), before * 0.25)


def test_without_gradients_nothing_pulls(space_of) -> None:
    model, inputs = build("resnet")
    live = Live(model, space_of("resnet"))
    pulls = Pulls(live)
    assert torch.equal(pulls(), torch.zeros(sum(live.widths.values())))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.head.weight.requires_grad_()
    loss(run(model, inputs)).backward()
    found = dict(zip(live.widths, pulls().split(list(live.widths.values())), strict=True))
    assert {name for name, values in found.items() if values.any()} == {"body.2.shortcut.conv"}


def test_nothing_is_changed(space_of) -> None:
    model, inputs = build("resnet")
    live = Live(model, space_of("resnet"))
    loss(run(model, inputs)).backward()
    before = [(p.clone(), p.grad.clone()) for p in model.parameters()]
    pulls = Pulls(live)()
    assert not pulls.requires_grad
    for parameter, (value, grad) in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
        assert torch.equal(parameter.grad, grad)
