"""DARTS and ProxylessNAS among blocks: gradients by hand, what is run is counted, networks within the budget."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem_bench.architecture_search.choices import BLOCK, NOTHING, Choice, Choices, slopes_of_scores
from meristem_bench.architecture_search.search import search
from meristem_bench.architecture_search.searchers import Darts, Proxyless, Searcher
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import run_to_end
from meristem_bench.runs.observers import RunObservers
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import build_model, load_data, trace_model


def deep_digits(**changes: object) -> Run:
    model = partial(ResNetCifar, channels=1, width=4, blocks=(2, 2, 2))
    run = find_run("digits", None).replace(name="deep", model=model, depth=True, epochs=2)
    return run.with_settings({"budget": "params=60%", **changes})


def a_choice() -> tuple[Choice, torch.Tensor]:
    torch.manual_seed(0)
    choice = Choice(nn.Linear(3, 3), torch.tensor([0.3, -0.4], requires_grad=True))
    return choice, torch.randn(5, 3, requires_grad=True)


def test_slopes_of_scores_are_those_of_a_mixture() -> None:
    """As autograd has them for a sum of shares times slopes."""
    scores, slopes = torch.tensor([0.3, -0.4], requires_grad=True), torch.tensor([1.5, -0.7])
    (expected,) = torch.autograd.grad((scores.softmax(0) * slopes).sum(), scores)
    torch.testing.assert_close(slopes_of_scores(scores.detach().softmax(0), slopes), expected)


@pytest.mark.parametrize("taken", [BLOCK, NOTHING])
def test_a_choice_weighs_what_is_not_taken(taken: int) -> None:
    """The slope by a share is the gradient of the loss by the output times what that choice puts out."""
    choice, x = a_choice()
    choice.taken, choice.weighs = taken, True
    out = choice(x)
    torch.testing.assert_close(out, choice.block(x) if taken == BLOCK else x)
    (out**2).sum().backward()
    gradient = 2 * out.detach()
    expected = torch.stack([(gradient * each).sum() for each in (choice.block(x).detach(), x.detach())])
    assert choice.slopes is not None
    torch.testing.assert_close(choice.slopes, expected)
    assert (choice.block.weight.grad is not None) == (taken == BLOCK)


def test_a_mixture_is_weighted_by_probabilities() -> None:
    choice, x = a_choice()
    p = torch.tensor([0.3, -0.4]).softmax(0)
    torch.testing.assert_close(choice(x), p[0] * choice.block(x) + p[1] * x)


def test_the_network_that_is_taken_is_that_without_the_other_blocks() -> None:
    run = deep_digits()
    data = load_data(run)
    model = build_model(run, data).eval()
    plain, space = copy.deepcopy(model), trace_model(run, model, data.example)
    choices = Choices(model, space, torch.Generator().manual_seed(0))
    for index, choice in enumerate(choices.by_group.values()):
        choice.taken = index % 2
    for group, block in space.blocks.items():
        if choices.by_group[group].taken == NOTHING:
            plain.set_submodule(block.path, nn.Identity())
    (x,) = data.example
    torch.testing.assert_close(model(x), plain(x))
    assert choices.widths(space.full) == {
        name: int(choices.by_group[name].taken == BLOCK) if name in choices.by_group else units
        for name, units in space.full.items()
    }


@pytest.mark.parametrize("searcher", [Darts(), Proxyless()], ids=lambda searcher: searcher.name)
def test_a_search_lands_and_its_network_can_be_trained(searcher: Searcher, tmp_path: Path) -> None:
    run = deep_digits()
    found = search(run, searcher)
    data = load_data(run)
    space = trace_model(run, build_model(run, data), data.example)
    prices = Prices(space)
    assert prices.fits(found.widths, {"params": 0.6})
    assert all(found.widths[name] == units for name, units in space.full.items() if name not in space.blocks)
    left_out = [name for name in space.blocks if not found.widths[name]]
    assert left_out
    assert not any(prices.fits({**found.widths, name: 1}, {"params": 0.6}) for name in left_out)
    assert search(run, searcher).probabilities == found.probabilities
    folder = Folder(tmp_path / searcher.name)
    found.write(run, searcher, folder)
    direct = run.replace(method="direct", widths=str(folder.path))
    result = run_to_end(direct, Folder(tmp_path / "direct"), RunObservers(()))
    assert result["widths"] == found.widths
    searched = found.ledger.spent / result["full"]["spend_macs"]
    assert result["total_spend_frac"] - result["spend_frac"] == pytest.approx(searched)


def test_what_a_search_costs() -> None:
    """Half of the samples, one step of the scores for one of the weights: with DARTS as much as training the whole."""
    run = deep_digits()
    data = load_data(run)
    steps = run.epochs * (len(data.splits["train"][0]) // 2 // run.batch)
    ledger = search(run, Darts()).ledger
    assert ledger.spent == pytest.approx(2 * 3 * steps * ledger.dense_macs)
    sampled = search(run, Proxyless()).ledger
    assert 0 < sampled.spent < 3 * steps * ledger.dense_macs + 3 * steps * ledger.dense_macs / 5
    assert set(sampled.by_stage) == {"search"}


def test_a_network_without_choices_is_refused() -> None:
    with pytest.raises(MeristemError, match="no block may be absent, so there is nothing to search; set depth=yes"):
        search(find_run("digits", None).with_settings({"epochs": "1"}), Darts())
