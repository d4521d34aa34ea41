"""The paper's method on its own networks, without data: from one filter it climbs, reaches the budget, stays, lands.

Why: with a norm behind a gated filter the task's gradient on a score vanishes, so that penalty, draws and budget alone
make the course of the widths. That course takes seconds here and days in a real run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

import meristem
from meristem import Budget, Space, methods
from meristem.control.simulation import SimulatedEpoch, simulate
from meristem_bench.models import (
    basic3_resnet,
    deeplab_v3_resnet101,
    lstm_lm,
    mobilenet_v1,
    plain3_net,
    resnet20,
    resnet50,
    vgg16,
    wrn28_10,
)

Schedule = Callable[[float], float]


def divided(divisor: float, *moments: float) -> Schedule:
    return lambda progress: divisor ** -sum(progress >= moment for moment in moments)


# Network, shape of the input, budget of the paper, epochs, steps per epoch, learning rate.
RUNS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...], str, int, int, Schedule]] = {
    "vgg16": (vgg16, (1, 3, 32, 32), "5%", 160, 391, divided(10, 0.5, 0.75)),
    "resnet20": (resnet20, (1, 3, 32, 32), "36%", 160, 391, divided(10, 0.5, 0.75)),
    "wrn28_10": (wrn28_10, (1, 3, 32, 32), "9.3%", 200, 391, divided(5, 0.3, 0.6, 0.8)),
    "resnet50": (resnet50, (1, 3, 64, 64), "61.2%", 90, 5004, divided(10, 1 / 3, 2 / 3)),
    "mobilenet_v1": (mobilenet_v1, (1, 3, 64, 64), "50%", 90, 5004, divided(10, 1 / 3, 2 / 3)),
    "lstm": (
        lambda: lstm_lm("large"),
        (1, 4),
        "31.2%",
        55,
        1327,
        lambda progress: 1.15 ** -max(0.0, 55 * progress - 14),
    ),
    "deeplab": (deeplab_v3_resnet101, (1, 3, 65, 65), "50.2%", 46, 661, lambda progress: (1 - progress) ** 0.9),
}
# By how much, relative to its budget, the letter misses it at the paper's length. DeepLab's 30 000 steps along a
# falling rate are too few for it: the run says so before it starts (runs/forecast.py).
MISS = dict.fromkeys(RUNS, 0.02) | {"deeplab": 0.065}


@cache
def space(name: str) -> Space:
    make, shape, *_ = RUNS[name]
    example = torch.zeros(shape, dtype=torch.long) if name == "lstm" else torch.zeros(shape)
    with torch.device("meta"):
        model = make()
    return meristem.trace(model, example.to("meta"), carried=1 if name == "lstm" else None)


def simulated(name: str, method: str, budget: str, epochs: int, steps: int, seed: int) -> list[SimulatedEpoch]:
    parsed = Budget.parse(budget)
    return simulate(
        methods.parse_method(method), space(name), parsed, epochs=epochs, steps=steps, lr_frac=RUNS[name][5], seed=seed
    )


@pytest.mark.parametrize("method", ["paper", "paper-steady"])
@pytest.mark.parametrize("name", RUNS)
def test_at_the_papers_length_it_lands_on_the_papers_budget(name: str, method: str) -> None:
    """Within 2 % of the budget, never above it at the end; one unit a group at first, and not far above on the way."""
    _, _, budget, epochs, steps, _ = RUNS[name]
    cap = float(budget[:-1]) / 100
    finals = []
    for seed in range(3):
        run = simulated(name, method, budget, epochs, steps, seed)
        shares = [epoch.shares["params"] for epoch in run]
        finals.append(shares[-1] / cap)
        assert run[0].widths == space(name).smallest
        assert shares[-1] <= cap * (1 + 1e-9)
        assert max(shares) < 1.35 * cap
    assert np.mean(finals) == pytest.approx(1.0, abs=MISS[name] if method == "paper" else 0.002)


@pytest.mark.parametrize("amount", ["2%", "10%", "20%", "60%", "80%"])
@pytest.mark.parametrize("metric", ["params", "macs"])
@pytest.mark.parametrize(("epochs", "steps"), [(20, 10), (20, 5000), (200, 391)])
@pytest.mark.parametrize("name", ["resnet20", "vgg16"])
def test_paper_steady_reaches_any_budget_in_any_run(
    name: str, epochs: int, steps: int, metric: str, amount: str
) -> None:
    run = simulated(name, "paper-steady", f"{metric}={amount}", epochs, steps, 0)
    cap = float(amount[:-1]) / 100
    assert run[-1].shares[metric] <= cap * (1 + 1e-9)
    assert run[-1].shares[metric] == pytest.approx(cap, rel=0.01)
    late = [epoch.shares[metric] / cap for epoch in run[int(0.8 * epochs) :]]
    assert max(late) < 1.15
    assert min(late) > 0.85


@pytest.mark.parametrize("name", ["wrn28_10", "resnet50", "mobilenet_v1", "lstm", "deeplab"])
@pytest.mark.parametrize("budget", ["params=10%", "macs=60%"])
def test_paper_steady_reaches_any_budget_on_every_network(name: str, budget: str) -> None:
    """In a short run of long epochs, where the letter would be far from it."""
    metric, amount = budget.split("=")
    run = simulated(name, "paper-steady", budget, 20, 2000, 0)
    assert run[-1].shares[metric] <= float(amount[:-1]) / 100 * (1 + 1e-9)
    assert run[-1].shares[metric] == pytest.approx(float(amount[:-1]) / 100, rel=0.01)


@pytest.mark.parametrize("method", ["paper", "paper-steady"])
@pytest.mark.parametrize("make", [basic3_resnet, plain3_net], ids=["basic3_resnet", "plain3_net"])
def test_depth_is_found_over_tens_of_epochs(make: Callable[..., torch.nn.Module], method: str) -> None:
    """From one block a stage, under one penalty for widths and blocks; the budget is met at the end."""
    with torch.device("meta"):
        model = make((8, 8, 8))
    traced = meristem.trace(model, torch.zeros(1, 3, 32, 32, device="meta"), depth=True)
    run = simulate(
        methods.parse_method(method),
        traced,
        Budget(params="30%"),
        epochs=160,
        steps=391,
        lr_frac=divided(10, 0.5, 0.75),
    )
    blocks = [sum(epoch.widths[group] for group in traced.blocks) for epoch in run]
    assert blocks[0] == 0
    assert blocks[-1] >= 3
    assert run[-1].shares["params"] <= 0.3 * (1 + 1e-9)
    assert run[-1].shares["params"] > (0.29 if method == "paper-steady" else 0.2)
    if method == "paper-steady":
        assert blocks[5] < blocks[-1], "not all at once"
