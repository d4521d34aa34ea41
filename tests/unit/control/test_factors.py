"""Groups whose product is a dimension: heads, and what is inside of them."""

from __future__ import annotations

import pytest
import torch

import meristem
from meristem.control.controller import widths_of
from meristem.control.fit_budget import fit, in_proportion
from meristem.cost.price import Prices
from meristem_bench.models.gpt import GPT

TEXT = torch.randint(0, 11, (1, 6))


def net() -> GPT:
    return GPT(11, context=6, channels=400, heads=16, blocks=2)


@pytest.fixture(scope="module")
def gpt() -> meristem.Space:
    return meristem.trace(net(), TEXT)


def test_heads_and_their_size_are_the_factors_of_a_width(gpt: meristem.Space) -> None:
    assert gpt.factors["blocks.0.attention.qkv:heads"] == gpt.factors["blocks.0.attention.qkv"] == 2
    assert gpt.factors["tokens"] == gpt.factors["blocks.0.up"] == 1


def test_parts_that_follow_one_another_are_no_factors() -> None:
    """Two layers are concatenated: each owns positions of its own."""

    class Joined(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.head = torch.nn.Linear(5, 4), torch.nn.Linear(5, 6), torch.nn.Linear(10, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.cat([self.one(x), self.two(x)], 1))

    assert set(meristem.trace(Joined(), torch.randn(2, 5)).factors.values()) == {1}


def test_the_width_of_all_heads_keeps_the_share_of_other_widths(gpt: meristem.Space) -> None:
    """With the same share of heads and of their dimensions the attention would be narrower than all else."""
    for share in (0.2, 0.4, 0.7):
        widths = widths_of(fit(Prices(gpt), in_proportion(gpt, {}), {"params": share}))
        inside = widths["blocks.0.attention.qkv:heads"] * widths["blocks.0.attention.qkv"] / 400
        assert inside == pytest.approx(widths["blocks.0.up"] / gpt.full["blocks.0.up"], abs=0.1)


def test_a_grower_keeps_it_too(gpt: meristem.Space) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    grower = meristem.Grower(model, optimizer, space=gpt, budget="40%", epochs=4, method="default:balance=0")
    for _ in range(4):
        model(TEXT).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        grower.step()
    inside = grower.widths["blocks.1.attention.qkv:heads"] * grower.widths["blocks.1.attention.qkv"] / 400
    assert inside == pytest.approx(grower.widths["blocks.1.up"] / gpt.full["blocks.1.up"], abs=0.1)
