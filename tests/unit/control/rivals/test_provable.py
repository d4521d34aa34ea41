"""PFP: sensitivities by hand, sample counts by formula, one error for all layers, and a run in cycles."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from growing import Growth
from helpers import build, loss, run
from meristem import Budget
from meristem.control.rivals.provable import expected_distinct, samples_needed, unit_sensitivities
from meristem.gating.interfaces import ReaderPatches

NET = "resnet"


def held_out_loss(model: nn.Module) -> torch.Tensor:
    return loss(run(model, build(NET, torch.float32)[1])).detach()


def test_sensitivities_by_hand() -> None:
    """One output with weights 1, 3, -2 and inputs 2, 1, 4: shares of the positive part 2/5 and 3/5, of the other 1."""
    reader = ReaderPatches(
        weight=torch.tensor([[[1.0], [3.0], [-2.0]]]),
        patches=torch.tensor([[[2.0], [1.0], [4.0]]]),
        units=torch.tensor([0, 1, 2]),
        width=3,
    )
    assert unit_sensitivities([reader]).tolist() == pytest.approx([0.4, 0.6, 1.0])


def test_inputs_of_one_unit_count_together_and_signs_apart() -> None:
    reader = ReaderPatches(
        weight=torch.tensor([[[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]]]),
        patches=torch.tensor([[[1.0, 1.0], [1.0, 5.0], [-3.0, 0.0]]]),
        units=torch.tensor([0, 1, 1]),
        width=2,
    )
    assert unit_sensitivities([reader]).tolist() == pytest.approx([2 / 3, 1.0])  # of 3 above zero, of 3 below


def test_sample_counts_follow_the_formula() -> None:
    log_term = math.log(8 * (64 + 1) * 9 / 1e-16)
    needed = 2 * 3 * log_term * 7.5
    assert samples_needed(7.5, 0.3, log_term) == math.ceil(3 * (6 + 2 * 0.3) * needed / 0.3**2)
    draws, trials = 5, 4000
    chances, rng = np.array([5.0, 3.0, 1.0, 1.0]), np.random.default_rng(0)
    hit = [len(set(rng.choice(4, size=draws, p=chances / 10))) for _ in range(trials)]
    assert expected_distinct(chances, draws) == pytest.approx(np.mean(hit), abs=0.05)


def test_a_run_in_cycles_of_equal_ratio_lands(space_of) -> None:
    budget = Budget(params="30%")
    growth = Growth(NET, space_of(NET), "provable", epochs=20, budget=budget, held_out_loss=held_out_loss).go()
    shares = [record["params_frac"] for record in growth.grower.records]
    levels = sorted(set(shares), reverse=True)
    assert shares[:8] == [1.0] * 8
    assert len(levels) == 4
    for level, expected in zip(levels, (1.0, 0.3 ** (1 / 3), 0.3 ** (2 / 3), 0.3), strict=True):
        assert expected - 0.06 < level <= expected + 1e-9
