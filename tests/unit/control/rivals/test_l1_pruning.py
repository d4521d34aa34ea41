"""L1-Pruning: the full network first, then the filters of largest L1 norm, and a ledger that knows both stages."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from growing import Growth
from meristem import Budget, methods
from meristem.gating.interfaces import WeightsOf
from meristem.gating.unit_weights import UnitWeights
from meristem.surgery.live import Live
from zoo import ZOO

HALF = Budget(params="50%")


def test_the_full_network_until_it_is_pruned_once(space_of) -> None:
    space = space_of("resnet")
    growth = Growth("resnet", space, methods.l1_pruning(), epochs=6, budget=HALF).go()
    records = growth.grower.records
    assert [record["widths"] == space.full for record in records] == [True] * 3 + [False] * 3
    assert records[3]["params_frac"] <= 0.5
    assert all(record["widths"] == records[3]["widths"] for record in records[3:])
    assert sum(record["pruned"] > 0 for record in records) == 1


def test_the_filters_of_largest_norm_stay(space_of) -> None:
    """In every group the units that go have smaller norms than those that stay, by the weights before the decision."""
    growth = Growth("plain", space_of("plain"), methods.l1_pruning(), epochs=4, budget=HALF).go(until=3)
    grower = growth.grower
    asked: list[dict[str, np.ndarray]] = []
    keeper = grower._growth.decider.keeper
    original = keeper.scores
    keeper.scores = lambda signals: asked.append(original(signals)) or asked[-1]  # type: ignore[func-returns-value]
    growth.step()
    for name, mask in grower.live.masks.items():
        assert 0 < mask.sum() < len(mask)
        assert asked[-1][name][mask].min() >= asked[-1][name][~mask].max(), name


def test_norms_of_filters_alone(space_of) -> None:
    """The L1 norm of what makes a unit: rows of the weight, whatever reads the unit."""
    model, _ = ZOO["plain"].build()
    space = space_of("plain")
    norms = UnitWeights(Live(model, space), WeightsOf.FILTER).norms(1.0)
    for name in space.groups:
        makers = space.coupled(name)[0]
        weights = [model.get_submodule(maker).weight.detach() for maker in makers]
        expected = sum(weight.abs().flatten(1).sum(1) for weight in weights)
        assert norms[name] == pytest.approx(np.asarray(expected, dtype=np.float64), rel=1e-5)


def test_the_ledger_counts_both_stages(space_of) -> None:
    growth = Growth("plain", space_of("plain"), methods.l1_pruning(pretrain=0.75), epochs=8, budget=HALF).go()
    last = growth.grower.records[-1]
    assert [record["stage"] for record in growth.grower.records] == ["pre-train"] * 6 + ["fine-tune"] * 2
    assert set(last["spend_by_stage"]) == {"pre-train", "fine-tune"}
    assert sum(last["spend_by_stage"].values()) == pytest.approx(last["spend_macs"])
    assert last["spend_by_stage"]["pre-train"] == pytest.approx(0.75 * last["dense_spend_macs"])


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_short_run_ends_within_the_budget(epochs: int, space_of) -> None:
    """A run without a decision starts where it must end."""
    torch.manual_seed(0)
    growth = Growth("plain", space_of("plain"), "l1", epochs=epochs, budget=HALF).go()
    assert growth.grower.records[-1]["params_frac"] <= 0.5


def test_when_it_prunes_is_one_number(space_of) -> None:
    growth = Growth("plain", space_of("plain"), "l1:freeze=0.25", epochs=8, budget=HALF).go()
    records = growth.grower.records
    assert [record["stage"] for record in records] == ["pre-train"] * 2 + ["fine-tune"] * 6
    assert [record["params_frac"] == 1.0 for record in records] == [True] * 2 + [False] * 6
