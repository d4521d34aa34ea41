"""NetAdapt: what each step may cost, proposals that meet it, the best of them, and short trainings that are counted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim

import meristem
from growing import Growth, assert_same, everything
from helpers import build, half, loss, run, snapshot
from meristem import Budget
from meristem.control.controller import View, widths_of
from meristem.control.rivals.netadapt import StepByStep, step_resource
from meristem.cost.ledger import FORWARD_AND_BACKWARD, SEARCH
from meristem.cost.price import Prices
from meristem.errors import MeristemError, SurgeryError
from meristem.gating.trials import Trials
from meristem.surgery.pruned_copy import pruned_copy
from meristem_bench.models import resnet20
from meristem_bench.models.resnet_cifar import ResNetCifar

NET = "resnet"


def held_out_loss(model: nn.Module) -> Tensor:
    return loss(run(model, build(NET, torch.float32)[1])).detach()


class Short:
    """Trains a model briefly on noise; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __call__(self, model: nn.Module, steps: int, seed: int) -> None:
        self.asked.append((steps, seed))
        optimizer, noise = optim.SGD(model.parameters(), lr=0.01), torch.Generator().manual_seed(seed)
        for _ in range(steps):
            optimizer.zero_grad()
            inputs = [torch.randn(each.shape, generator=noise) for each in build(NET, torch.float32)[1]]
            loss(run(model, inputs)).backward()
            optimizer.step()


def adapted(space, epochs: int = 12, method: str = "netadapt:steps=2", **more) -> Growth:
    given = {"held_out_loss": held_out_loss, "short_training": Short(), **more}
    return Growth(NET, space, method, epochs=epochs, budget=Budget(params="40%"), **given)


def test_the_resource_falls_as_the_authors_do_and_ends_at_the_budget() -> None:
    """R_i = R_(i-1) - r d^(i-1) with one r."""
    shares = [step_resource({"macs": 0.3}, step, 6, 0.96)["macs"] for step in range(7)]
    falls = [before - after for before, after in itertools.pairwise(shares)]
    assert (shares[0], shares[-1]) == pytest.approx((1.0, 0.3))
    assert [after / before for before, after in itertools.pairwise(falls)] == pytest.approx([0.96] * 5)


@pytest.mark.parametrize("step", [1, 3, 6])
@pytest.mark.parametrize("metric", ["macs", "params"])
def test_proposals_meet_the_resource_of_their_step(metric: str, step: int) -> None:
    """Each narrows one layer to the largest width that does; the units of largest norm stay."""
    space = meristem.trace(resnet20(), torch.randn(1, 3, 32, 32))
    prices, rng = Prices(space), np.random.default_rng(0)
    live = {name: np.ones(units, dtype=np.bool_) for name, units in space.full.items()}
    norms = {name: rng.random(units) for name, units in space.full.items()}
    view = View(norms, {}, live, live, {}, {metric: 0.5}, False, prices)
    limits = step_resource({metric: 0.7}, step, 6, 0.96)
    proposals = list(StepByStep().proposals(view, limits, final=False))
    assert proposals
    for proposal in proposals:
        widths = widths_of(proposal)
        assert prices.fits(widths, limits)
        (name,) = [name for name in widths if widths[name] < space.full[name]]
        multiple = max(1, min(8, space.full[name] // 8))
        assert widths[name] % multiple == 0
        assert not prices.fits({**widths, name: widths[name] + multiple}, limits)
        assert norms[name][proposal[name]].min() > norms[name][~proposal[name]].max()


def test_a_step_that_no_layer_can_meet_alone_narrows_all() -> None:
    space = meristem.trace(resnet20(), torch.randn(1, 3, 32, 32))
    prices = Prices(space)
    live = {name: np.ones(units, dtype=np.bool_) for name, units in space.full.items()}
    norms = {name: np.arange(float(units)) for name, units in space.full.items()}
    view = View(norms, {}, live, live, {}, {"macs": 0.05}, False, prices)
    (only,) = StepByStep().proposals(view, {"macs": 0.1}, final=False)
    shares = {name: mask.mean() for name, mask in only.items()}
    assert prices.fits(widths_of(only), {"macs": 0.1})
    assert max(shares.values()) - min(shares.values()) < 0.1


def test_the_proposal_of_lowest_loss_is_taken_with_its_weights(space_of) -> None:
    """One after the other is tried on the same batches; what was learned in the trial stays."""
    space, short = space_of(NET), Short()
    seen: list[tuple[float, dict[str, Tensor]]] = []

    def watched(model: nn.Module) -> Tensor:
        value = held_out_loss(model)
        seen.append((float(value), {name: tensor.clone() for name, tensor in model.state_dict().items()}))
        return value

    growth = adapted(space, short_training=short, held_out_loss=watched).go(until=12)
    groups = len([name for name in space.groups if name not in space.blocks])
    assert 1 < len(seen) <= groups
    assert len(set(short.asked)) == 1
    lowest = min(seen, key=lambda each: each[0])[1]
    assert all(torch.equal(lowest[name], tensor) for name, tensor in growth.model.state_dict().items())


def test_it_goes_step_by_step_and_lands(space_of) -> None:
    growth = adapted(space_of(NET), epochs=16).go()
    records = growth.grower.records
    shares = [record["params_frac"] for record in records]
    steps = [1 - 0.6 * sum(0.96**j for j in range(i)) / sum(0.96**j for j in range(4)) for i in range(1, 5)]
    assert shares[:8] == [1.0] * 8
    assert all(share <= step + 1e-9 for share, step in zip(shares[8:12], steps, strict=True))
    assert 0.36 < shares[-1] <= 0.4
    assert {"pre-train", "prune", "fine-tune", SEARCH} == set(records[-1]["spend_by_stage"])


def test_short_trainings_are_on_the_ledger(space_of) -> None:
    """Three passes a step and one for the held-out data, each at the cost of the network that was tried out."""
    space = space_of(NET)
    growth = adapted(space, method="netadapt:steps=3").go(until=12)
    trials = growth.grower._growth.gating.trials
    assert trials is not None
    batch = len(growth.inputs[0])
    assert all(passes == batch * (FORWARD_AND_BACKWARD * 3 + 1) for passes, _ in trials.passes)
    prices, ledger = Prices(space), growth.grower.ledger
    expected = sum(passes / batch * prices.share("macs", widths) for passes, widths in trials.passes)
    assert ledger.by_stage[SEARCH] == pytest.approx(expected * ledger.dense_macs)


def test_a_trial_leaves_the_model_as_it_is(space_of) -> None:
    space = space_of(NET)
    growth = Growth(NET, space, "dense", budget="100%").go(until=2)
    live, before = growth.grower.live, snapshot(growth.model, growth.optimizer)
    masks = {name: np.isin(np.arange(units), half(space)[name]) for name, units in space.full.items()}
    trial = Trials(live, held_out_loss, Short())(masks, 2, 0)
    assert_same(snapshot(growth.model, growth.optimizer), before)
    assert np.isfinite(trial.loss)
    untrained = Trials(live, held_out_loss, Short())(masks, 0, 0)
    live.apply(live.plan(half(space)))
    for name, tensor in growth.model.state_dict().items():
        assert torch.equal(untrained.weights[name], tensor), name
    assert float(held_out_loss(growth.model.eval())) == pytest.approx(untrained.loss)


def test_what_it_needs_is_named(space_of) -> None:
    with pytest.raises(MeristemError, match=r"give short_training=, a function \(model, steps, seed\)"):
        adapted(space_of(NET), short_training=None)
    with pytest.raises(MeristemError, match="give held_out_loss="):
        adapted(space_of(NET), held_out_loss=None)
    with pytest.raises(MeristemError, match="short_training must be a function of a model"):
        adapted(space_of(NET), short_training=3)
    idle = adapted(space_of(NET), short_training=lambda model, steps, seed: None)
    with pytest.raises(MeristemError, match="did not call the model it was given"):
        idle.go()


def test_it_resumes(space_of, tmp_path) -> None:
    whole = adapted(space_of(NET)).go(until=13)
    whole.save(tmp_path / "a")
    whole.go()
    assert_same(everything(adapted(space_of(NET)).resume(tmp_path / "a").go()), everything(whole), leave=("path",))


def test_a_model_with_absent_blocks_cannot_be_tried_out() -> None:
    model, inputs = ResNetCifar(channels=1, width=4, blocks=(2, 2, 2)), torch.randn(2, 1, 8, 8)
    space = meristem.trace(model, inputs, depth=True)
    whole = {name: range(units) for name, units in space.full.items()}
    live = meristem.Live(model, space, start={**whole, next(iter(space.blocks)): []})
    with pytest.raises(SurgeryError, match=r"which needs every block, but stages\.0\.1 is absent"):
        pruned_copy(live, live.masks)
