"""Counting: a network small enough to count by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import meristem


def net() -> meristem.Space:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
    return meristem.trace(model, torch.ones(5, 3))


@pytest.mark.parametrize("width", [1, 2, 4, 2.5])
def test_by_hand(width: float) -> None:
    assert meristem.count_params(net(), {"0": width}) == 3 * width + width + 2 * width
    assert meristem.count_macs(net(), {"0": width}) == 5 * (3 * width + 2 * width)


def test_the_default_is_full() -> None:
    assert meristem.count_params(net()) == 24
    assert meristem.count_macs(net()) == 100


def test_free_share() -> None:
    assert net().free_params_frac == 1.0
    pinned = meristem.trace(nn.Sequential(nn.Linear(3, 4)), torch.ones(5, 3))
    assert pinned.free_params_frac == 0.0


def test_embeddings_are_parameters_but_not_macs() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2))
    space = meristem.trace(model, torch.zeros(3, dtype=torch.long))
    assert meristem.count_params(space) == 28 + 8 + 2
    assert meristem.count_macs(space) == 3 * 4 * 2
