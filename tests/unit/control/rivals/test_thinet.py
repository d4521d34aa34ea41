"""ThiNet: the greedy choice, the least squares, what a layer is given, and a run that goes layer by layer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import meristem
from growing import Growth, assert_same, everything
from helpers import build, loss, run
from meristem import Budget
from meristem.control.rivals.thinet import kept_units, reweighted
from meristem.errors import MeristemError
from meristem.gating.held_out import HeldOut
from nets.common import seq

NET = "resnet"


def held_out_loss(model: nn.Module) -> torch.Tensor:
    return loss(run(model, build(NET, torch.float32)[1])).detach()


def grown(space, epochs: int = 8, method: str = "thinet", **more) -> Growth:
    budget = Budget(params="40%")
    return Growth(NET, space, method, epochs=epochs, budget=budget, held_out_loss=held_out_loss, **more)


@pytest.mark.parametrize("seed", range(8))
def test_the_greedy_choice_is_that_of_brute_force(seed: int) -> None:
    """One after the other goes the unit that leaves the smallest sum of squares of all that is gone."""
    contributions = np.random.default_rng(seed).normal(size=(40, 6))
    gone: list[int] = []
    while len(gone) < 4:
        rest = [unit for unit in range(6) if unit not in gone]
        gone.append(min(rest, key=lambda unit: float((contributions[:, [*gone, unit]].sum(1) ** 2).sum())))
        assert kept_units(contributions, 6 - len(gone)).tolist() == sorted(set(range(6)) - set(gone))


def test_the_first_choice_is_the_best_of_all() -> None:
    contributions = np.random.default_rng(3).normal(size=(40, 6))
    best = min(itertools.combinations(range(6), 1), key=lambda gone: float((contributions[:, gone].sum(1) ** 2).sum()))
    assert set(range(6)) - set(kept_units(contributions, 5).tolist()) == set(best)


def test_factors_are_least_squares() -> None:
    rng = np.random.default_rng(0)
    contributions, kept = rng.normal(size=(50, 6)), np.array([0, 2, 5])
    expected = np.linalg.lstsq(contributions[:, kept], contributions.sum(1), rcond=None)[0]
    assert reweighted(contributions, kept) == pytest.approx(expected, rel=1e-4)


def test_patches_are_what_outputs_are_computed_from() -> None:
    """The sum over a patch times the weights is an output of the layer, for strides, padding, dilation and linear."""
    torch.manual_seed(0)
    model = seq(
        a=nn.Conv2d(3, 4, 3),
        b=nn.Conv2d(4, 5, (3, 2), stride=2, padding=1, dilation=(1, 2), bias=False),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        head=nn.Linear(5, 2, bias=False),
    )
    inputs = torch.randn(4, 3, 9, 9)
    live = meristem.Live(model, meristem.trace(model, inputs))
    outputs: dict[str, torch.Tensor] = {}
    for name in ("b", "head"):
        model.get_submodule(name).register_forward_hook(
            lambda module, args, out, name=name: outputs.update({name: out})
        )
    held_out = HeldOut(live, lambda model: model(inputs).mean().detach())
    found = held_out.reader_patches(7, np.random.default_rng(0))
    for group, reader in (("a", "b"), ("b", "head")):
        (patches,) = found[group]
        assert patches.units.tolist() == list(range(patches.width))
        every = {round(value, 4) for value in outputs[reader].flatten().tolist()}
        computed = torch.einsum("ock,mck->mo", patches.weight, patches.patches)
        assert computed.shape[0] == 7
        assert {round(value, 4) for value in computed.flatten().tolist()} <= every


def test_it_goes_layer_by_layer_and_lands(space_of) -> None:
    space = space_of(NET)
    growth = grown(space, epochs=12).go()
    records = growth.grower.records
    narrower = [sum(record["widths"][name] < units for name, units in space.full.items()) for record in records]
    assert narrower[:6] == [0] * 6
    assert narrower == sorted(narrower)
    assert len(set(narrower)) > 2, "all layers were pruned at once"
    assert 0.35 < records[-1]["params_frac"] <= 0.4
    assert {"pre-train", "prune", "fine-tune", "search"} == set(records[-1]["spend_by_stage"])


def test_reweighting_keeps_the_outputs_nearer(space_of) -> None:
    """Right after the first layer is pruned the loss has moved less with factors than without."""
    moved = []
    for reweight in ("yes", "no"):
        torch.manual_seed(0)
        growth = grown(space_of(NET), 8, f"thinet:reweight={reweight}:begin=0.1").go(until=2)
        before = float(held_out_loss(growth.model.eval()))
        growth.model.train()
        growth.step()
        growth.step()
        moved.append(abs(float(held_out_loss(growth.model.eval())) - before))
    assert moved[0] != moved[1]


def test_it_resumes(space_of, tmp_path) -> None:
    whole = grown(space_of(NET)).go(until=10)
    whole.save(tmp_path / "a")
    whole.go()
    assert_same(everything(grown(space_of(NET)).resume(tmp_path / "a").go()), everything(whole), leave=("path",))


def test_units_that_no_such_layer_reads_are_named() -> None:
    model = seq(emb=nn.Embedding(5, 4), rnn=nn.RNN(4, 6, batch_first=True))
    tokens = torch.zeros(2, 3, dtype=torch.long)

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = model, nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.inner(x)[0])

    words = Words()
    optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
    with pytest.raises(MeristemError, match=r"none of them reads inner\.emb; pin them"):
        meristem.Grower(
            words,
            optimizer,
            tokens,
            budget="60%",
            epochs=4,
            method="thinet",
            held_out_loss=lambda model: model(tokens).mean().detach(),
        )
