"""Every method passes the conformance checks, and the checks find what is wrong with one that does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from helpers import build
from meristem import methods
from meristem.control.controller import Decision, FixedStructure, Traits, View
from meristem.control.importance import Importance
from meristem.errors import MeristemError
from meristem.methods import METHODS, parse_method
from meristem.testing import check_method

NET = "resnet"
NEEDS_MORE = {
    "direct": "it needs widths",
    "autogrow": "it grows depth alone",
    # The letter of the paper reaches its budget in runs of the paper's length; tests/laws/test_paper_simulation.py.
    "paper": "the letter needs the paper's length",
    "paper-nas": "the letter needs the paper's length",
}


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return build(NET, torch.float32)[0]


INPUTS = build(NET, torch.float32)[1]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in NEEDS_MORE])
def test_every_method_passes(name: str) -> None:
    method = parse_method(name)
    check_method(method, model, INPUTS, budget="100%" if method.ignores_budget else "40%")


@dataclass(frozen=True)
class TooLarge(Traits):
    """Keeps all units to the end."""

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        return Decision({name: np.ones_like(mask) for name, mask in view.live.items()})


@dataclass(frozen=True)
class TooSmall(Traits):
    """Keeps one unit of each group."""

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        return Decision({name: np.arange(len(mask)) == 0 for name, mask in view.live.items()})


@dataclass(frozen=True)
class Forgetful(Traits):
    """Draws from numbers that no checkpoint holds."""

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        mine = np.random.default_rng()
        return Decision({name: mine.permutation(len(mask)) < len(mask) / 3 for name, mask in view.live.items()})


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (TooLarge(), "the budget allows 40"),
        (TooSmall(), "of the budget are left, and one more unit of"),
        (Forgetful(), "a run that was taken up after epoch 4 has another loss|budget"),
    ],
)
def test_what_is_wrong_is_told(controller: object, message: str) -> None:
    with pytest.raises(MeristemError, match=message):
        check_method(replace(methods.default(), controller=controller), model, INPUTS)


def test_a_method_that_never_looks_at_what_it_asks_for_is_told() -> None:
    idle = replace(methods.uniform(), scores=Importance(), controller=FixedStructure(), looks_at_inputs=True)
    with pytest.raises(MeristemError, match="nothing of that is on the ledger"):
        check_method(idle, model, INPUTS)
