"""Proportions: how wide groups are in relation to one another, from what their layers cost."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import nn

import meristem
from meristem.control.controller import widths_of
from meristem.control.fit_budget import fit, in_proportion
from meristem.control.proportions import EVEN, Proportions
from meristem.cost.price import Prices
from meristem.errors import MeristemError
from meristem_bench.models import resnet20


@cache
def narrow_to_wide() -> Prices:
    """Convolutions of 32 to 256 channels; later ones see fewer positions, as in every network for images."""
    layers: list[nn.Module] = []
    for channels_in, channels in ((3, 32), (32, 32), (32, 64), (64, 64), (64, 256), (256, 256)):
        layers += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU()]
        layers += [nn.AvgPool2d(2)] if channels_in == channels else []
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10))
    return Prices(meristem.trace(net, torch.ones(1, 3, 8, 8)))


@cache
def residual() -> Prices:
    return Prices(meristem.trace(resnet20(), torch.ones(1, 3, 32, 32)))


def widths(prices: Prices, proportions: Proportions, **caps: float) -> dict[str, int]:
    multipliers = proportions.multipliers(prices, caps)
    return widths_of(fit(prices, in_proportion(prices.space, multipliers), caps))


def test_without_balance_every_group_has_the_same_share_of_its_units() -> None:
    found = widths(narrow_to_wide(), EVEN, params=0.25)
    for group, units in narrow_to_wide().space.full.items():
        assert found[group] / units == pytest.approx(0.5, abs=1.5 / units)


def test_balanced_layers_cost_about_the_same() -> None:
    """Between groups that are not whole; a layer of the full model costs up to 64 times as much as another."""
    found = list(widths(narrow_to_wide(), Proportions(0.5), params=0.10).values())
    inner = [before * after for before, after in pairwise(found)][2:]
    assert max(inner) / min(inner) < 2.5


@pytest.mark.parametrize("balance", [0.25, 0.5])
def test_a_cap_on_parameters_widens_early_layers(balance: float) -> None:
    full, found = narrow_to_wide().space.full, widths(narrow_to_wide(), Proportions(balance), params=0.1)
    shares = {group: found[group] / units for group, units in full.items()}
    assert shares["0"] >= shares["5"] > shares["10"]
    assert shares["0"] > shares["10"] * 1.5


def test_layers_that_cost_the_same_make_it_uniform() -> None:
    """Every stage of a residual network has the same macs: there the balanced network is nearly the uniform one."""
    found, even = (widths(residual(), each, macs=0.36) for each in (Proportions(), EVEN))
    params = [residual().share("params", each) for each in (found, even)]
    assert params[0] == pytest.approx(params[1], rel=0.1)


@pytest.mark.parametrize(("params", "macs"), [(0.36, 0.38), (0.36, 0.5)])
def test_several_caps_are_all_used_up(params: float, macs: float) -> None:
    shares = residual().shares(widths(residual(), Proportions(), params=params, macs=macs))
    assert 0.97 * params < shares["params"] <= params
    assert 0.97 * macs < shares["macs"] <= macs


def test_what_is_free_in_the_named_metric_is_taken_whole() -> None:
    """An embedding has no multiply-adds: under a cap on them its price is that of what reads it."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.hidden, self.out = nn.Embedding(50, 16), nn.Linear(16, 16), nn.Linear(16, 3)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.out(torch.relu(self.hidden(self.table(words))))

    prices = Prices(meristem.trace(Tagger(), torch.zeros(1, 4, dtype=torch.long)))
    by_params, by_macs = (widths(prices, Proportions(), **{name: 0.4}) for name in ("params", "macs"))
    assert by_params["table"] < by_macs["table"]


def test_the_balance_is_a_setting_of_methods_that_follow_a_plan() -> None:
    assert meristem.methods.parse_method("default:balance=0.25").proportions == Proportions(0.25)
    with pytest.raises(MeristemError, match="balance must be a number of at least 0, got -1"):
        meristem.methods.parse_method("default:balance=-1")
    with pytest.raises(MeristemError, match="has no 'balance'"):
        meristem.methods.parse_method("paper:balance=0.25")


def test_the_default_ends_in_the_widths_of_the_balanced_method() -> None:
    model = resnet20()
    space = meristem.trace(model, torch.ones(1, 3, 32, 32))
    ends = {}
    for method in ("default", "balanced"):
        model = resnet20()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        grower = meristem.Grower(model, optimizer, space=space, budget="30%", epochs=4, method=method)
        for _ in range(4):
            grower.step()
        ends[method] = grower.widths
    assert ends["default"] == ends["balanced"]


@pytest.mark.parametrize("balance", [0.35, 0.7, 1.0])
@pytest.mark.parametrize("macs", [0.38, 0.5, 0.6])
def test_two_caps_are_used_up_together(balance: float, macs: float) -> None:
    """Unless one cap alone leaves less than the other allows."""
    alone = residual().shares(widths(residual(), Proportions(balance), params=0.36))["macs"]
    shares = residual().shares(widths(residual(), Proportions(balance), params=0.36, macs=macs))
    assert shares["params"] > 0.97 * 0.36
    assert shares["macs"] > 0.97 * min(macs, alone)
