"""Soft filter pruning: weak filters, but not their norms, are zero after every epoch; they recover; at last they go."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from growing import Growth
from meristem import Budget, methods
from meristem.gating.interfaces import WeightsOf

HALF = Budget(params="50%")
NET = "resnet"


def filter_norms(growth: Growth) -> dict[str, np.ndarray]:
    return growth.grower._growth.gating.weights(WeightsOf.FILTER).norms(2.0)


def test_weak_filters_are_zero_and_nothing_else_changes(space_of) -> None:
    """As many as do not fit the budget, those of smallest norm; norms, momentum and all other weights stay."""
    growth = Growth(NET, space_of(NET), methods.soft_pruning(), epochs=6, budget=HALF).go(until=1)
    grower = growth.grower
    finish = grower._growth.finish_epoch
    seen: list[tuple[dict[str, np.ndarray], dict[str, torch.Tensor], list[torch.Tensor]]] = []

    def momentum() -> list[torch.Tensor]:
        return [state["momentum_buffer"].clone() for state in growth.optimizer.state.values()]

    def watched(*args):
        tensors = {name: value.clone() for name, value in growth.model.state_dict().items()}
        seen.append((filter_norms(growth), tensors, momentum()))
        return finish(*args)

    grower._growth.finish_epoch = watched
    growth.step()
    norms_before, tensors_before, momentum_before = seen[0]
    norms = filter_norms(growth)
    zeroed = 0
    for name in norms:
        strong = norms[name] > 0
        zeroed += int((~strong).sum())
        assert strong.any()
        if not strong.all():
            assert norms_before[name][strong].min() >= norms_before[name][~strong].max(), name
        assert np.array_equal(norms[name][strong], norms_before[name][strong]), name
    assert zeroed > 0
    assert grower.widths == space_of(NET).full, "tensors stay full"
    for name, value in growth.model.state_dict().items():
        if value.dim() < 2:
            assert torch.equal(value, tensors_before[name]), f"{name} is no filter, but was changed"
        else:
            assert torch.equal(value[value != 0], tensors_before[name][value != 0]), name
    assert all(torch.equal(a, b) for a, b in zip(momentum(), momentum_before, strict=True))


def test_zeroed_filters_recover(space_of) -> None:
    growth = Growth(NET, space_of(NET), methods.soft_pruning(), epochs=6, budget=HALF).go(until=2)
    weak = {name: norms == 0 for name, norms in filter_norms(growth).items()}
    growth.step()
    norms = filter_norms(growth)
    assert any(mask.any() for mask in weak.values())
    assert all((norms[name][mask] > 0).all() for name, mask in weak.items())


def test_in_the_last_epoch_the_network_is_small_and_the_rest_cost_what_the_full_one_costs(space_of) -> None:
    growth = Growth(NET, space_of(NET), "soft-pruning", epochs=5, budget=HALF).go()
    records = growth.grower.records
    assert [record["params_frac"] == 1.0 for record in records] == [True] * 4 + [False]
    assert 0.4 < records[-1]["params_frac"] <= 0.5
    assert records[-1]["spend_frac"] == pytest.approx((4 + records[-1]["macs_frac"]) / 5)
    assert set(records[-1]["spend_by_stage"]) == {"prune"}
    small = growth.grower.export()
    assert sum(each.numel() for each in small.parameters()) == records[-1]["params"]


def test_a_run_that_resumes_goes_on_as_if_it_had_not_stopped(space_of, tmp_path) -> None:
    whole = Growth(NET, space_of(NET), "soft-pruning", epochs=4, budget=HALF).go(until=5)
    whole.save(tmp_path / "a")
    whole.go()
    again = Growth(NET, space_of(NET), "soft-pruning", epochs=4, budget=HALF).resume(tmp_path / "a").go()
    assert again.losses == whole.losses
    assert again.grower.widths == whole.grower.widths
