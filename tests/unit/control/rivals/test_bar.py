"""BAR: the barrier and the sliding budget by hand, gates against autograd, a teacher, and a run that lands."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import meristem
from growing import Growth, assert_same, batch, everything
from helpers import loss, run
from meristem import Budget, methods
from meristem.control.distillation import Distillation
from meristem.control.first_scores import FirstNetwork
from meristem.control.rivals.bar import VolumeGates, barrier, sliding_budget
from meristem.control.scores import EpochStart, ScoresStart, StageTime
from meristem.cost.ledger import FINE_TUNE, FORWARD_AND_BACKWARD, PRE_TRAIN, PRUNE, TEACH
from meristem.cost.price import Prices
from meristem.cost.volume import unit_volumes
from meristem.errors import MeristemError
from meristem.gating.kinds import HardConcrete
from meristem_bench.models import resnet20

NET = "resnet"


class Taught(Growth):
    """A loop that asks the teacher, as the user of a method with one does."""

    def step(self) -> None:
        self.optimizer.zero_grad()
        inputs = batch(self.inputs)
        outputs = run(self.model, inputs)
        value = self.grower.taught(loss(outputs), outputs[0], *inputs)
        value.backward()
        self.optimizer.step()
        self.losses.append(float(value.detach()))
        self.done += 1
        if self.done % self.steps == 0:
            self.scheduler.step()
            self.grower.step(loss=self.losses[-1])


def pruned(space, method: str | meristem.Method = "bar", epochs: int = 8, **more) -> Taught:
    return Taught(NET, space, method, epochs=epochs, budget=Budget(params="40%"), **more)


def test_the_barrier_by_hand() -> None:
    """r = (V - a) / (b - a), f = r^2 / (1 - r): nothing up to a, the ceiling from b on."""
    assert barrier(0.3, 0.4, 0.8, 1e10) == 0.0
    for r in (0.25, 0.5, 0.9):
        assert barrier(0.4 + 0.4 * r, 0.4, 0.8, 1e10) == pytest.approx(r * r / (1 - r))
    assert barrier(0.8, 0.4, 0.8, 1e10) == barrier(0.95, 0.4, 0.8, 1e10) == 1e10
    assert barrier(0.8 - 1e-9, 0.4, 0.8, 1e3) == 1e3


def test_the_budget_slides_along_a_logistic_curve() -> None:
    """From 1.01 of the full volume to the target, half of the way in the middle, never back."""

    def logistic(t: float) -> float:
        return 1 / (1 + math.exp(-10 * (t - 0.5)))

    start, end = logistic(0), logistic(1)
    moments = np.linspace(0, 1, 11)
    values = [sliding_budget(t, 0.3) for t in moments]
    expected = [1.01 + (0.3 - 1.01) * (logistic(t) - start) / (end - start) for t in moments]
    assert values == pytest.approx(expected)
    assert (values[0], values[-1]) == pytest.approx((1.01, 0.3))
    assert values == sorted(values, reverse=True)


def test_volumes_are_the_outputs_of_layers() -> None:
    """Shares of all outputs of convolutions and linear layers, counted by running the network."""
    model, inputs = resnet20(), torch.randn(2, 3, 32, 32)
    space = meristem.trace(model, inputs)
    counted: list[int] = []
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(lambda module, args, out: counted.append(out.numel()))
    model(inputs)
    volumes = unit_volumes(space)
    assert volumes["stages.0.0.conv1"] == pytest.approx(2 * 32 * 32 / sum(counted))
    assert sum(volumes[name] * units for name, units in space.full.items()) == pytest.approx(1 - 20 / sum(counted))


def test_hard_concrete_gates_have_the_slope_of_autograd_and_the_chance_of_their_draws() -> None:
    kind, rng = HardConcrete(), torch.Generator().manual_seed(0)
    score = (6 * torch.rand(500, generator=rng, dtype=torch.float64) - 3).requires_grad_()
    noise = torch.rand(500, generator=rng, dtype=torch.float64)
    values = kind.value(score, torch.ones(()), noise)
    (slopes,) = torch.autograd.grad(values.sum(), score)
    torch.testing.assert_close(kind.slope(score.detach(), torch.ones(()), noise), slopes)
    assert {0.0, 1.0} <= set(values.tolist())
    for s in (-2.0, -1.0, 1.0):
        draws = kind.value(torch.full((20_000,), s), torch.ones(()), torch.rand(20_000, generator=rng))
        chance = float(kind.chance(torch.tensor(s)))
        assert float((draws > 0).float().mean()) == pytest.approx(chance, abs=0.02)
        median = kind.value(torch.tensor(s), torch.ones(()), torch.tensor(0.5))
        assert bool(median > 0) == (chance > 0.5)


def test_distillation_by_hand() -> None:
    """The gradient of T^2 KL is T (softmax of the own - softmax of the teacher's); the own loss counts a tenth."""
    rng = torch.Generator().manual_seed(0)
    outputs = torch.randn(4, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    taught = torch.randn(4, 5, generator=rng, dtype=torch.float64)
    lesson, own = Distillation(), torch.tensor(2.0, dtype=torch.float64)
    value = lesson.loss(own, outputs, taught)
    (gradient,) = torch.autograd.grad(value, outputs)
    expected = 0.9 * 4 * ((outputs / 4).softmax(1) - (taught / 4).softmax(1)) / 4
    torch.testing.assert_close(gradient, expected.detach(), rtol=1e-5, atol=1e-7)
    assert float(lesson.loss(own, taught, taught)) == pytest.approx(0.2)
    images = torch.randn(2, 5, 3, 3)
    assert float(lesson.loss(torch.zeros(()), images, images)) == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(MeristemError, match=r"got \[4, 5\] of the network and \[4, 4\] of its teacher"):
        lesson.loss(own, outputs, taught[:, :4])


def test_it_trains_dense_then_with_gates_and_a_teacher_then_lands(space_of) -> None:
    space = space_of(NET)
    growth = pruned(space, epochs=10).go()
    records, ledger = growth.grower.records, growth.grower.ledger
    assert [record["params_frac"] for record in records[:7]] == [1.0] * 7
    assert 0.35 < records[-1]["params_frac"] <= 0.4
    assert [record["stage"] for record in records] == [PRE_TRAIN] * 4 + [PRUNE] * 3 + [FINE_TUNE] * 3
    taught = sum(record["stage"] == PRUNE for record in records)
    dense_step = ledger.dense_macs
    assert ledger.by_stage[TEACH] == pytest.approx(taught * growth.steps * dense_step)
    assert ledger.by_stage[PRE_TRAIN] == pytest.approx(FORWARD_AND_BACKWARD * 4 * growth.steps * dense_step)


def test_the_teacher_is_the_network_as_it_was_trained(space_of) -> None:
    growth = pruned(space_of(NET), epochs=10).go(until=8)
    before = {name: tensor.clone() for name, tensor in growth.model.state_dict().items()}
    assert growth.grower.records[-1]["stage"] == PRE_TRAIN
    growth.step()
    teacher = growth.grower._growth.teacher
    assert teacher is not None
    assert teacher.ready
    assert all(torch.equal(before[name], tensor) for name, tensor in teacher.state_dict()["weights"].items())
    assert any(not torch.equal(before[name], tensor) for name, tensor in growth.model.state_dict().items())


def test_landing_changes_nothing_but_the_units_that_go(space_of) -> None:
    """With room for all units, the network after the last decision computes what it did with its median gates."""
    method = replace(methods.bar(), freeze=0.8)
    growth = Taught(NET, space_of(NET), method, epochs=5, budget=Budget(params="100%")).go(until=7)
    keeper = growth.grower._growth.decider.keeper
    keeper._s += torch.randn(len(keeper._s), generator=torch.Generator().manual_seed(0))
    inputs = growth.inputs
    expected = [each.detach() for each in run(growth.grower.export().eval(), inputs)]
    growth.grower.step()
    torch.testing.assert_close([each.detach() for each in run(growth.model.eval(), inputs)], expected)
    assert all(keeper.gates(name) is None for name in space_of(NET).groups)


def test_what_is_evaluated_and_exported_has_the_medians(space_of) -> None:
    """Training draws gates at every step; evaluation does not, and computes what the export computes."""
    growth = pruned(space_of(NET), epochs=10).go(until=10)
    assert growth.grower.records[-1]["stage"] == PRUNE
    keeper = growth.grower._growth.decider.keeper
    keeper._s -= 1.5  # few gates are at their ends
    with torch.no_grad():
        evaluated = [run(growth.model.eval(), growth.inputs)[0]]
        keeper._draw()
        evaluated.append(run(growth.model, growth.inputs)[0])
        exported = run(growth.grower.export().eval(), growth.inputs)[0]
        torch.testing.assert_close(evaluated[0], evaluated[1], rtol=0, atol=0)
        torch.testing.assert_close(exported, evaluated[0])


class Wanted:
    """Signals of a task that wants every gate open, each as much as it matters."""

    def __init__(self, importance: torch.Tensor) -> None:
        self._importance = importance

    def pull(self) -> torch.Tensor:
        return -self._importance


def test_the_barrier_closes_on_the_volume_and_shuts_what_matters_least() -> None:
    space = meristem.trace(resnet20(), torch.randn(1, 3, 32, 32))
    live = {name: np.ones(units, dtype=np.bool_) for name, units in space.full.items()}
    prices, rng, steps = Prices(space), np.random.default_rng(0), 600
    keeper = VolumeGates().keeper(ScoresStart(FirstNetwork(live, prices, {"params": 0.4}), rng, HardConcrete()))
    keeper.begin(EpochStart(live, {}, torch.device("cpu"), stage=StageTime(PRUNE, 0.0, 1 / steps)))
    importance = torch.rand(sum(space.full.values()), generator=torch.Generator().manual_seed(0)) * 1e-3
    for _ in range(steps):
        keeper.step(Wanted(importance), 1.0)
    kept = keeper._median() > 0
    volume, target = float((keeper._volume * kept).sum()), keeper.target
    assert 0.8 * target < volume < target + 0.02
    assert float(importance[kept].mean()) > 1.2 * float(importance[~kept].mean())


def test_an_epoch_without_asking_the_teacher_is_refused(space_of) -> None:
    growth = Growth(NET, space_of(NET), "bar", epochs=8, budget=Budget(params="40%"))
    with pytest.raises(MeristemError, match=r"put loss = grower.taught\(loss, outputs, inputs\) before"):
        growth.go()


def test_without_a_teacher_the_loss_is_as_given(space_of) -> None:
    growth = Growth(NET, space_of(NET), "default")
    value = torch.ones(())
    assert growth.grower.taught(value, torch.zeros(1, 2), *growth.inputs) is value


@pytest.mark.parametrize("at", [6, 9, 13])
def test_it_resumes_also_within_an_epoch(space_of, tmp_path, at: int) -> None:
    whole = pruned(space_of(NET)).go(until=at)
    whole.save(tmp_path / "a")
    whole.go()
    assert_same(everything(pruned(space_of(NET)).resume(tmp_path / "a").go()), everything(whole), leave=("path",))
