"""The group lasso: its gradient is autograd's, a unit's weights are a set, and what it kills can go unnoticed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim

from helpers import assert_near, build, go, half, loss, run
from meristem import Live, Space
from meristem.control.rivals.iss import Lasso
from meristem.gating.gating import Gating, Phase
from meristem.gating.unit_weights import UnitWeights
from meristem.space.space import Role

STRENGTH, EPSILON = 0.3, 1e-8
SpaceOf = Callable[[str], Space]


def counted(space: Space) -> list[str]:
    """The parameters whose positions belong to units: of two or more dimensions, or reading."""
    reading = {site.tensor for site in space.sites if Role.IN in site.roles}
    return [
        name
        for name, tensor in space.tensors.items()
        if tensor.is_parameter and (len(tensor.shape) > 1 or name in reading)
    ]


def belongs(live: Live, tensor: str, group: str, unit: int) -> Tensor:
    """Which live positions of a tensor belong to a unit: those that it owns along any dimension."""
    axes = live.space.axes(tensor)
    found = torch.zeros([len(live.positions(axis)) for axis in axes], dtype=torch.bool)
    for dim, axis in enumerate(axes):
        for part in axis.parts:
            if part.group == group:
                mine = torch.from_numpy(part.units[live.positions(axis)] == unit)
                found |= mine.view([-1 if at == dim else 1 for at in range(len(axes))])
    return found


def unit_squares(live: Live, group: str, unit: int) -> Tensor:
    """The formula, unit by unit."""
    parts = [live.tree.tensor(name)[belongs(live, name, group, unit)] for name in counted(live.space)]
    return torch.cat(parts).square().sum()


def live_units(live: Live) -> list[tuple[str, int]]:
    return [(name, int(unit)) for name, mask in live.masks.items() for unit in np.flatnonzero(mask)]


PRESSING = Phase(trains=True, grows=True, scores=False, presses=True)


class NoGates:
    """A source of gates that has none."""

    scales_gates = reads_steps = False

    def gates(self, group: str) -> None:
        return None


def pressed(live: Live, lasso: Lasso) -> Gating:
    assert live.optimizer is not None
    return Gating(live, live.optimizers, NoGates(), lambda signals: None, pressure=lasso)


@pytest.mark.parametrize("name", ["lstm_lm", "gru", "resnet", "vgg", "shufflenet", "attention_matmul", "gpt_tied"])
@pytest.mark.parametrize("small", [False, True], ids=["full", "half"])
def test_the_gradient_is_that_of_the_formula(name: str, small: bool, space_of: SpaceOf) -> None:
    """For all parameters, on top of what is in their gradients already; biases and norms get nothing."""
    model, _ = build(name)
    live = Live(model, space_of(name))
    weights = UnitWeights(live)
    if small:
        weights.norms(2)  # what is remembered of one network must not be used for the next
        go(live, half(live.space))
    norms = [(unit_squares(live, *unit) + EPSILON).sqrt() for unit in live_units(live)]
    (STRENGTH * torch.stack(norms).sum()).backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    maker = torch.Generator().manual_seed(0)
    before = {}
    for number, (key, parameter) in enumerate(model.named_parameters()):
        if number % 2:  # the others have no gradient yet
            parameter.grad = torch.randn(parameter.shape, generator=maker, dtype=parameter.dtype)
        before[key] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
    Lasso(STRENGTH).before_step(weights, {}, None)
    for key, parameter in model.named_parameters():
        known = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        wanted = torch.zeros_like(parameter) if expected[key] is None else expected[key]
        assert_near(known - before[key], wanted, 1e-9, key)


@pytest.mark.parametrize("name", ["lstm_lm", "shufflenet", "einsum", "bare_parameters"])
def test_norms_are_those_of_sets(name: str, space_of: SpaceOf) -> None:
    """A weight between two units counts for both, one that a unit owns twice counts once; no unit, no norm."""
    live = Live(build(name)[0], space_of(name))
    go(live, half(live.space))
    norms = UnitWeights(live).norms(2)
    for group, mask in live.masks.items():
        for unit in range(len(mask)):
            known = float(unit_squares(live, group, unit).detach().sqrt()) if mask[unit] else 0.0
            assert abs(norms[group][unit] - known) <= 1e-12 * max(1.0, known), (group, unit)


def test_small_weights_become_zero_after_the_step(space_of: SpaceOf) -> None:
    """Those of units only, and only while the lasso is attached; a frozen weight stays."""
    model, _ = build("lstm_lm", torch.float32)
    live = Live(model, space_of("lstm_lm"), optim.SGD(model.parameters(), lr=0.0))
    gating = pressed(live, Lasso(0.0, 0.1))
    gating.enter(Phase(trains=True, grows=True, scores=False, presses=False))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model.head.weight.requires_grad_(False)
    assert live.optimizer is not None
    live.optimizer.step()
    gating.enter(PRESSING)
    gating.enter(PRESSING)  # once is enough
    live.optimizer.step()
    gating.enter(Phase(trains=True, grows=True, scores=False, presses=False))
    for name, parameter in model.named_parameters():
        shrunk = parameter.dim() > 1 and parameter.requires_grad
        old = before[name]
        wanted = torch.where(old.abs() > 0.1, old, 0.0) if shrunk else old
        assert torch.equal(parameter, wanted), name
        assert not shrunk or 0 < int((parameter == 0).sum()) < parameter.numel()
    model.rnn.weight_ih_l0.data.fill_(0.01)
    live.optimizer.step()
    assert torch.equal(model.rnn.weight_ih_l0, torch.full_like(model.rnn.weight_ih_l0, 0.01))


def test_a_closure_and_a_scaled_gradient_give_the_same_step(space_of: SpaceOf) -> None:
    results = []
    for way in ("plain", "closure", "scaled"):
        model, inputs = build("lstm_lm")
        optimizer = optim.SGD(model.parameters(), lr=0.1, fused=way == "scaled")
        pressed(Live(model, space_of("lstm_lm"), optimizer), Lasso(STRENGTH, 1e-3)).enter(PRESSING)

        def closure(model: nn.Module = model, inputs: tuple[Tensor, ...] = inputs) -> Tensor:
            model.zero_grad()
            value = loss(run(model, inputs))
            value.backward()
            return value

        if way == "closure":
            assert optimizer.step(closure) > 0
        else:
            closure()
            if way == "scaled":  # as a gradient scaler leaves it to a fused optimizer
                for parameter in model.parameters():
                    parameter.grad *= 8.0
                optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(0.0)
            optimizer.step()
        results.append({name: parameter.detach() for name, parameter in model.named_parameters()})
    for other in results[1:]:
        for name, parameter in results[0].items():
            assert_near(other[name], parameter, 1e-12, name)


READ_BY_WEIGHTS = (
    *("plain", "plain_no_norm", "vgg", "resnet", "densenet", "inverted_residual", "squeeze_excite", "shufflenet"),
    *("depthwise_transposed", "swiglu", "attention_matmul", "gpt_tied", "lstm_lm", "gru", "bilstm", "rnn"),
)


@pytest.mark.parametrize("name", READ_BY_WEIGHTS)
def test_a_unit_without_weights_can_go_unnoticed(name: str, space_of: SpaceOf) -> None:
    """A dead unit changes nothing when it goes, whatever its bias: nobody reads it.

    Left out: groups that a norm, mean or softmax runs across, which also reads how many units there are, and those
    that no weight reads (what two products make of each other).
    """
    space = space_of(name)
    read = {group for site in space.sites if Role.IN in site.roles for group in site.axis.groups}
    groups = [
        group for group in space.groups.values() if not group.mixes_units and group.name in read and group.units > 1
    ]
    assert groups
    model, inputs = build(name)
    live = Live(model, space)
    dead = [(group.name, group.units // 2) for group in groups]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)  # biases too
        for tensor in counted(space):
            for unit in dead:
                live.tree.tensor(tensor)[belongs(live, tensor, *unit)] = 0.0
    norms = UnitWeights(live).norms(2)
    assert [(group, int(unit)) for group in norms for unit in np.flatnonzero(norms[group] == 0)] == dead
    model.eval()
    with torch.no_grad():
        before = run(model, inputs)
        go(live, {group: np.flatnonzero(norms[group] > 0) for group, _ in dead})
        for number, (now, then) in enumerate(zip(run(model, inputs), before, strict=True)):
            assert_near(now, then, 1e-12, f"output {number}")
