"""The held-out loss under noise: what it computes, and that nothing of it stays in the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import meristem
from meristem.errors import MeristemError
from meristem.gating.held_out import HeldOut
from nets.common import seq

INPUTS = torch.linspace(-1, 1, 24).view(8, 3)


def network() -> nn.Module:
    torch.manual_seed(0)
    return seq(
        a=nn.Linear(3, 4), act=nn.ReLU(), drop=nn.Dropout(0.5), b=nn.Linear(4, 5), act_b=nn.ReLU(), c=nn.Linear(5, 2)
    )


def loss(model: nn.Module) -> torch.Tensor:
    return model(INPUTS).square().mean().detach()


def test_noise_scales_what_reads_a_unit() -> None:
    """1 + spread * noise on the columns of the next layer, the same as on what the units pass on."""
    model = network()
    live = meristem.Live(model, meristem.trace(model, INPUTS))
    rises = HeldOut(live, loss).rises({"a": 0.7}, draws=3, rng=np.random.default_rng(5))
    model.eval()
    plain, rng, expected = model.b.weight.detach().clone(), np.random.default_rng(5), []
    for _ in range(3):
        with torch.no_grad():
            model.b.weight.copy_(plain * torch.from_numpy((1 + 0.7 * rng.standard_normal(4)).astype(np.float32)))
            expected.append(float(loss(model)))
            model.b.weight.copy_(plain)
    assert rises["a"] == pytest.approx(np.mean(expected) - float(loss(model)), rel=1e-5)


def test_a_group_that_nobody_listens_to_is_not_minded() -> None:
    model = network()
    nn.init.zeros_(model.b.weight)
    live = meristem.Live(model, meristem.trace(model, INPUTS))
    rises = HeldOut(live, loss).rises({"a": 1.0, "b": 1.0}, draws=2, rng=np.random.default_rng(0))
    assert rises["a"] == 0.0
    assert rises["b"] != 0.0


def test_the_model_is_as_it_was_and_its_samples_are_counted() -> None:
    model = network()
    model.b.eval()
    live = meristem.Live(model, meristem.trace(model, INPUTS))
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    probe = HeldOut(live, loss)
    probe.rises({"a": 1.0, "b": 1.0}, draws=2, rng=np.random.default_rng(0))
    assert probe.samples == 8 * (1 + 2 * 2)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_loss_that_is_no_number_is_refused_and_leaves_nothing_behind() -> None:
    model = network()
    live = meristem.Live(model, meristem.trace(model, INPUTS))
    with pytest.raises(MeristemError, match="held_out_loss returned nan"):
        HeldOut(live, lambda model: float("nan")).rises({"a": 1.0}, 1, np.random.default_rng(0))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
