"""Law 8, for averages. The averaged copy of a resized run is the averaged copy of the masked full-size run.

The masked run keeps its averages at full size, too. Those of units that are not live are put back after every update,
so that nothing is averaged while they are away: a unit returns with the average it had, and the average of a fresh one
starts with its weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import meristem
from helpers import assert_near, build, go, half, live_part, loss, random_target, run, whole
from masked_run import INPUTS, MaskedRun, net, targets
from meristem import Live, Space
from meristem.errors import SurgeryError

AVERAGES: dict[str, Callable[[nn.Module], AveragedModel]] = {
    "mean": AveragedModel,
    "ema": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True),
}


def sgd(params: Any) -> optim.Optimizer:
    return optim.SGD(params, lr=0.05, momentum=0.9)


@pytest.fixture(scope="module")
def space() -> Space:
    return meristem.trace(net(), *INPUTS)


class MaskedAverages(MaskedRun):
    def __init__(self, space: Space, live: Live, average: Callable[[nn.Module], AveragedModel]) -> None:
        super().__init__(space, sgd, live)
        self.averaged = average(self.model)

    def averages(self) -> dict[str, Tensor]:
        return {name: parameter.data for name, parameter in self.averaged.module.named_parameters()}

    def step(self) -> None:
        super().step()
        before = {name: value.clone() for name, value in self.averages().items()}
        self.averaged.update_parameters(self.model)
        for name, value in self.averages().items():
            value[~self.alive[name]] = before[name][~self.alive[name]]

    def resize(self, live: Live) -> None:
        alive = self.positions(live)
        for name, value in self.averages().items():
            fresh = alive[name] & ~self.lived[name]
            value[fresh] = self.model.get_parameter(name).data[fresh]
        super().resize(live)


@pytest.mark.parametrize("made", ["full", "small"])
@pytest.mark.parametrize("average", AVERAGES)
def test_averages_follow(average: str, made: str, space: Space) -> None:
    """Whether the copy is made from the full-size model or from the small one."""
    model = net()
    early = AVERAGES[average](model)
    live = Live(model, space, sgd(model.parameters()), start=half(space))
    averaged = early if made == "full" else AVERAGES[average](model)
    live.follow(averaged.module)
    masked = MaskedAverages(space, live, AVERAGES[average])
    for target in [None, *targets(space)]:
        if target is not None:
            go(live, target)
            masked.resize(live)
        for _ in range(3):
            model.zero_grad()
            loss([model(*INPUTS)]).backward()
            live.optimizer.step()
            averaged.update_parameters(model)
            masked.step()
            for name, expected in masked.averages().items():
                got = averaged.module.get_parameter(name).detach()
                assert_near(got, live_part(expected, space, name, live), 1e-9, name)
    assert [type(module) for module in averaged.module.modules()] == [type(module) for module in model.modules()]
    assert averaged(*INPUTS).shape == (9, 3)


@pytest.mark.parametrize("name", ["resnet", "deep_residual", "deep_masked"])
def test_the_copy_is_always_built_like_the_model(name: str, space_of: Callable[[str], Space]) -> None:
    """Statistics, remembered sizes and absent blocks included: it takes the model's state and computes the same."""
    model, inputs = build(name, torch.float32)
    space = space_of(name)
    averaged = AveragedModel(model)
    live = Live(model, space, sgd(model.parameters()), start=half(space))
    live.follow(averaged.module)
    rng = np.random.default_rng(1)
    for target in [random_target(space, rng), whole(space), random_target(space, rng)]:
        go(live, target)
        live.optimizer.zero_grad()
        loss(run(model, inputs)).backward()
        live.optimizer.step()
        averaged.update_parameters(model)
        averaged.module.load_state_dict(model.state_dict())
        model.eval()
        averaged.eval()
        for one, two in zip(run(model, inputs), run(averaged.module, inputs), strict=True):
            assert torch.equal(one, two)
        model.train()
        averaged.train()


def test_a_resumed_run_has_its_averages(space: Space, tmp_path: Path) -> None:
    def start() -> tuple[nn.Module, AveragedModel, meristem.Grower]:
        model = net()
        averaged = AVERAGES["ema"](model)
        optimizer = sgd(model.parameters())
        grower = meristem.Grower(model, optimizer, space=space, budget="60%", epochs=4, method="default:peak=1.2")
        grower.follow(averaged)
        return model, averaged, grower

    def train(model: nn.Module, averaged: AveragedModel, grower: meristem.Grower, epochs: int) -> list[float]:
        losses = []
        for _ in range(epochs):
            for _ in range(2):
                model.zero_grad()
                loss([model(*INPUTS)]).backward()
                grower.optimizer.step()
                averaged.update_parameters(model)
                losses.append(float(loss([averaged(*INPUTS)]).detach()))
            grower.step()
        return losses

    first = start()
    train(*first, 2)
    first[2].checkpoint(tmp_path / "run", updates=first[1].n_averaged)
    expected = train(*first, 2)
    again = start()
    again[1].n_averaged.copy_(again[2].resume(tmp_path / "run")["updates"])
    assert train(*again, 2) == expected

    alone = net()
    grower = meristem.Grower(
        alone, sgd(alone.parameters()), space=space, budget="60%", epochs=4, method="default:peak=1.2"
    )
    with pytest.raises(meristem.MeristemError, match=r"kept with 1 averaged copies .*, here are 0; call follow"):
        grower.resume(tmp_path / "run")


def test_what_is_no_copy(space: Space) -> None:
    model = net()
    grower = meristem.Grower(model, sgd(model.parameters()), space=space, budget="60%", epochs=4)
    for wrong, message in (
        (nn.Linear(2, 2), "takes an averaged copy of the model, a Sequential, or an AveragedModel of it, got Linear"),
        (model, "got the model itself, or a copy that shares its parameters"),
    ):
        with pytest.raises(meristem.MeristemError, match=message):
            grower.follow(wrong)
    small = copy.deepcopy(model)
    grower.live.apply(grower.live.plan(whole(space)))
    go(grower.live, {next(iter(space.groups)): [0, 1, 2]})
    with pytest.raises(SurgeryError, match="neither the size of the full model nor that of the model now"):
        grower.follow(small)
