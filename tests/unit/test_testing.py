"""The masked reference: that it agrees with masking by hand, and that it would notice a mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import meristem
from between import Between, X
from helpers import assert_all_near, assert_is_masked_reference, assert_untouched, build, go, half, run, state_of
from meristem import Live
from meristem.testing import masked_reference


def test_all_alive_is_the_model_itself(space_of) -> None:
    model, inputs = build("vit")
    space = space_of("vit")
    masks = {name: np.ones(group.units, dtype=np.bool_) for name, group in space.groups.items()}
    assert_all_near(masked_reference(model, space, masks, inputs).outputs, run(model, inputs), 1e-12)


def test_masking_by_hand(space_of) -> None:
    """Without norms, a dead unit is one whose reading weights are zero."""
    model, inputs = build("plain_no_norm")
    space = space_of("plain_no_norm")
    masks = {name: np.arange(group.units) % 2 == 0 for name, group in space.groups.items()}
    reference = masked_reference(model, space, masks, inputs)
    with torch.no_grad():
        model.body[2].weight[:, 1::2] = 0
        model.head.weight[:, 1::2] = 0
        assert_all_near(reference.outputs, run(model, inputs), 1e-12)


def test_scales_by_hand(space_of) -> None:
    model, inputs = build("bare_parameters")
    space = space_of("bare_parameters")
    masks = {name: np.ones(group.units, dtype=np.bool_) for name, group in space.groups.items()}
    gate = torch.linspace(0.1, 1, 6, dtype=torch.float64)
    reference = masked_reference(model, space, masks, inputs, {("head.weight", 1): gate})
    with torch.no_grad():
        model.head.weight.mul_(gate)
        assert_all_near(reference.outputs, run(model, inputs), 1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_model_is_left_alone(training: bool, space_of) -> None:
    model, inputs = build("resnet")
    space = space_of("resnet")
    model.train(training)
    before = state_of(model)
    masks = {name: np.arange(group.units) < 2 for name, group in space.groups.items()}
    reference = masked_reference(model, space, masks, inputs)
    reference.backward([torch.ones_like(out) for out in reference.outputs])
    assert_untouched(model, before)
    assert model.training is training
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("name", ["resnet", "vit", "lstm_lm", "group_norm"])
def test_a_wrong_live_model_is_noticed(name: str, space_of) -> None:
    """The comparison is worth something only if a small mistake fails it."""
    model, inputs = build(name)
    full = copy.deepcopy(model)
    live = Live(model, space_of(name))
    go(live, half(live.space))
    with torch.no_grad():
        next(p for p in model.parameters() if p.dim() > 1).flatten()[0].add_(1e-3)
    with pytest.raises(AssertionError, match="off by"):
        assert_is_masked_reference(live, full, inputs)


def test_frozen_parameters_have_no_gradient() -> None:
    full = Between(lambda x, n: torch.tanh(x)).double()
    full.two.bias.requires_grad_(False)
    inputs = (X.double(),)
    live = Live(copy.deepcopy(full), meristem.trace(full, inputs))
    go(live, {"one": [1, 2, 6]})
    assert_is_masked_reference(live, full, inputs)
    assert live.model.two.bias.grad is None


# --- what models keep from torch's gradients ------------------------------------------------------------------------


class Sign(torch.autograd.Function):
    """The sign, passed over on the way back."""

    @staticmethod
    def forward(context: Any, x: Tensor, temperature: float) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return 0.5 * gradient, None


class OwnSoftmax(torch.autograd.Function):
    """A softmax across units; the other units must not take part in it."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        y = x.softmax(1)
        context.save_for_backward(y)
        return y

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (y,) = context.saved_tensors
        return y * (gradient - (gradient * y).sum(1, keepdim=True))


def scaled_without_gradient(x: Tensor, n: int) -> Tensor:
    with torch.no_grad():
        scale = torch.sigmoid(x).square()
    return x * scale


def written_without_gradient(x: Tensor, n: int) -> Tensor:
    x = x * 1
    part = x[:1]
    with torch.no_grad():
        part.mul_(2)
        x.add_(torch.tanh(x))
    return x * part.sum(0)


def gradient_in_the_midst(x: Tensor, n: int) -> Tensor:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = torch.tanh(x)
    return y * z + x.detach()


@torch.inference_mode()
def inferred(x: Tensor) -> Tensor:
    return torch.tanh(x)


KEPT_BACK = {
    "no_grad": scaled_without_gradient,
    "written under no_grad": written_without_gradient,
    "enable_grad": gradient_in_the_midst,
    "inference mode": lambda x, n: x * inferred(x).sum(0).clone(),
    "straight through": lambda x, n: Sign.apply(x, 1.0) * x,
    "an own softmax": lambda x, n: OwnSoftmax.apply(x),
}


@pytest.mark.parametrize("name", KEPT_BACK)
def test_what_has_no_gradient_or_one_of_its_own(name: str) -> None:
    full = Between(KEPT_BACK[name]).double()
    inputs = (X.double(),)
    live = Live(copy.deepcopy(full), meristem.trace(full, inputs))
    assert live.widths == {"one": 8}
    go(live, {"one": [1, 2, 6]})
    assert_is_masked_reference(live, full, inputs)


# --- what models do to tensors in place -----------------------------------------------------------------------------


def token_written(x: Tensor) -> Tensor:
    """A view of one sample is written to: its base must see it."""
    x = x.clone()
    x[0] = 0.5 * x[1]
    return x


def seeded(x: Tensor) -> Tensor:
    """Numbers that are drawn once for each run, and written to after that."""
    return x * torch.rand(3, 1, generator=torch.Generator().manual_seed(0), dtype=x.dtype).add_(1)


@pytest.mark.parametrize("change", [token_written, seeded], ids=lambda change: change.__name__)
def test_what_is_changed_in_place(change: Callable[[Tensor], Tensor]) -> None:
    full = Between(lambda x, n: change(x)).double()
    inputs = (X.double(),)
    live = Live(copy.deepcopy(full), meristem.trace(full, inputs))
    assert live.widths == {"one": 8}
    go(live, {"one": [1, 2, 6]})
    assert_is_masked_reference(live, full, inputs)
