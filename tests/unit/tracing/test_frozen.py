"""Frozen parameters: nothing is learned about their units, so these stay unless the user says otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn, optim

import meristem

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


class LowRank(nn.Module):
    """A frozen layer with a trained detour of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(5, 8), nn.Linear(5, 3, bias=False), nn.Linear(3, 8, bias=False)
        self.head = nn.Linear(8, 2)
        self.base.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.base(x) + self.up(self.down(x))))


def backbone() -> nn.Module:
    """A frozen backbone under a trained head of two layers."""
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4), nn.Linear(4, 2))
    model[:3].requires_grad_(False)
    return model


def test_what_frozen_parameters_have_units_of_stays() -> None:
    space = meristem.trace(backbone(), X)
    assert space.full == {"4": 4}
    assert {pin.name: pin.reason for pin in space.pinned if pin.name in "02"} == {
        "0": "0 is frozen (requires_grad is False)",
        "2": "2 is frozen (requires_grad is False)",
    }
    assert "frozen='resize'" in str(space)


def test_the_units_of_a_trained_detour_are_free() -> None:
    assert meristem.trace(LowRank(), X).full == {"down": 3}
    assert meristem.trace(LowRank(), X, frozen="resize").full == {"base": 8, "down": 3}


def test_frozen_parameters_may_shrink_if_the_user_says_so() -> None:
    model = backbone()
    trained = optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    grower = meristem.Grower(model, trained, X, epochs=2, budget="60%", frozen="resize")
    assert set(grower.space.full) == {"0", "2", "4"}


def test_by_default_a_grower_leaves_frozen_parameters_alone() -> None:
    model = backbone()
    trained = optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    before = model[0].weight
    grower = meristem.Grower(model, trained, X, epochs=2, budget="90%")
    assert set(grower.space.full) == {"4"}
    assert model[0].weight is before


def test_where_everything_is_frozen_nothing_is_more_so() -> None:
    """A model that was loaded for inference is traced as any other, and the table says why."""
    space = meristem.trace(backbone().requires_grad_(False), X)
    assert set(space.full) == {"0", "2", "4"}
    assert "none counts as frozen" in str(space)


def test_another_word_is_refused() -> None:
    with pytest.raises(meristem.MeristemError, match="frozen='thaw' is not known"):
        meristem.trace(backbone(), X, frozen="thaw")  # type: ignore[arg-type]
