"""The grower with what models and users do now and then: buffers that come and go, copies, conversions, retries."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim

import meristem
from deep import DEEP
from growing import Growth
from helpers import assert_all_near, loss, run
from meristem import Budget, Grower, MeristemError, methods
from meristem.control.first_scores import FirstNetwork, OneDrawn
from meristem.cost.price import Prices
from meristem.methods import direct
from meristem.surgery.fresh import AsBuilt

HALF = Budget(params="50%")
PAPER = replace(methods.METHODS["paper"](), scores=replace(methods.paper().scores, per_run=False))


# --- checkpoints --------------------------------------------------------------------------------------------------


class Cached(nn.Module):
    """A cache that gets longer, a buffer that is set on the way, and one that is cleared."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))
        self.register_buffer("cache", torch.zeros(1))
        self.register_buffer("offset", None)
        self.register_buffer("first", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) * (1 if self.offset is None else self.offset)

    def see(self, x: Tensor) -> None:
        self.cache = torch.arange(len(self.cache) + 1.0)
        self.offset = x.mean() if self.offset is None else 0.9 * self.offset + 0.1 * x.mean()
        self.first = None


def cached_run() -> tuple[Grower, Any]:
    torch.manual_seed(0)
    model = Cached()
    grower = Grower(model, optim.SGD(model.parameters(), lr=0.1), torch.randn(2, 4), budget=HALF, epochs=6)

    def epoch() -> float:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(grower.epoch))
        model.see(x)
        out = loss(model(x))
        grower.optimizer.zero_grad()
        out.backward()
        grower.optimizer.step()
        grower.step()
        return out.item()

    return grower, epoch


def test_buffers_of_any_size_are_kept(tmp_path: Path) -> None:
    grower, epoch = cached_run()
    for _ in range(3):
        epoch()
    grower.checkpoint(tmp_path / "run")
    expected = [epoch() for _ in range(3)]
    again, epoch = cached_run()
    again.resume(tmp_path / "run")
    assert len(again.model.cache) == 4
    assert again.model.first is None
    assert [epoch() for _ in range(3)] == expected
    assert list(again.export().state_dict()) == list(grower.export().state_dict())


def test_a_finished_run_that_is_resumed_is_the_network_that_was_trained(space_of, tmp_path: Path) -> None:
    torch.manual_seed(0)
    done = Growth("plain", space_of("plain"), PAPER, epochs=6).go()
    done.grower.checkpoint(tmp_path / "run")
    again = Growth("plain", space_of("plain"), PAPER, epochs=6)
    again.grower.resume(tmp_path / "run")
    with torch.no_grad():
        one, two = (run(each.grower.export().eval(), done.inputs) for each in (done, again))
    assert_all_near(one, two, 0.0)


class Mine:
    """A rule of the user's own, as a plain class: its repr has its address in memory."""

    incoming, outgoing = AsBuilt.incoming, AsBuilt.outgoing


def test_a_policy_of_the_users_own_does_not_keep_a_run_from_going_on(space_of, tmp_path: Path) -> None:
    first, second = (
        Growth("mlp", space_of("mlp"), replace(methods.METHODS["default"](), fresh=Mine()), epochs=4) for _ in range(2)
    )
    first.go(4).grower.checkpoint(tmp_path / "run")
    second.grower.resume(tmp_path / "run")
    assert second.grower.epoch == 2


# --- copies and conversions ---------------------------------------------------------------------------------------


def test_a_model_with_gates_is_not_copied(space_of) -> None:
    """A copy would run without the gates and compute something else."""
    growth = Growth("plain", space_of("plain"), "paper", epochs=4).go(2)
    for way in (copy.deepcopy, optim.swa_utils.AveragedModel):
        with pytest.raises(MeristemError, match=r"cannot be copied or pickled; take grower.export\(\)"):
            way(growth.model)
    copy.deepcopy(growth.grower.export())
    growth.go()


def test_a_model_that_is_converted_while_blocks_are_absent() -> None:
    model, inputs = DEEP["deep_residual"].build()
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    space = meristem.trace(model, inputs, depth=True)
    grower = Grower(model, optimizer, inputs, space=space, budget=HALF, epochs=4)
    model.to(torch.float32 if next(model.parameters()).dtype is torch.float64 else torch.float64)
    with pytest.raises(MeristemError, match=r"converted from .* while it grows.*convert it before the grower is made"):
        grower.step()
    assert grower.epoch == 0


def test_data_parallel_has_no_gates(space_of) -> None:
    model, inputs = DEEP["deep_residual"].build()
    with pytest.raises(MeristemError, match=r"nn\.DataParallel copies the model without its gates"):
        Grower(
            nn.DataParallel(model),
            optim.SGD(model.parameters(), lr=0.1),
            inputs,
            budget=HALF,
            epochs=4,
            method=PAPER,
        )


# --- sparse gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_sparse_gradients_of_an_embedding(preset: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8, sparse=True), nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))
    words = torch.randint(0, 20, (4, 5))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    grower = Grower(model, optimizer, words, budget=HALF, epochs=6, method=methods.METHODS[preset]())
    for _ in range(6):
        optimizer.zero_grad()
        loss(model(words)).backward()
        optimizer.step()
        grower.step()
    assert grower.records[-1]["params_frac"] <= 0.5
    assert len({record["widths"]["0"] for record in grower.records}) > 1 or preset == "paper"


# --- what is refused does not count -------------------------------------------------------------------------------


def test_a_history_that_cannot_be_appended_to(space_of, tmp_path: Path) -> None:
    growth = Growth("mlp", space_of("mlp"), epochs=4, history=tmp_path / "runs" / "history.jsonl")
    (tmp_path / "runs" / "history.jsonl").unlink()
    (tmp_path / "runs").rmdir()
    with pytest.raises(MeristemError, match=r"the history cannot be written to .*history.jsonl: No such file"):
        growth.go(2)


# --- starts and numbers -------------------------------------------------------------------------------------------


def test_of_the_absent_blocks_of_a_stage_about_one_is_drawn() -> None:
    model, inputs = DEEP["deep_residual"].build()
    space = meristem.trace(model, inputs, depth=True)
    absent = {name: np.zeros(group.units, dtype=np.bool_) for name, group in space.groups.items()}
    first = OneDrawn().scores(FirstNetwork(absent, Prices(space), {}), np.random.default_rng(0))
    chances = {name: 1 / (1 + np.exp(-scores)) for name, scores in first.items()}
    for stage in space.stages:
        expected = len(stage.blocks) / (len(stage.blocks) + 1)
        assert sum(float(chances[block.group][0]) for block in stage.blocks) == pytest.approx(expected)
    for name, group in space.groups.items():
        if name not in space.blocks:
            assert chances[name].sum() == pytest.approx(group.units / (group.units + 1))


def test_numbers_of_numpy_and_numbers_without_sense(space_of, tmp_path: Path) -> None:
    growth = Growth("mlp", space_of("mlp"), budget=Budget(params=np.int64(60)), epochs=np.int64(4))
    growth.go().grower.checkpoint(tmp_path / "run")
    assert growth.grower.records[-1]["params"] <= 60
    with pytest.raises(MeristemError, match=r"widths must be whole numbers, got 4\.0 for a"):
        Growth("mlp", space_of("mlp"), direct({"a": 4.0, "b": 2}), epochs=4)
    method = methods.METHODS["default"]()
    method = replace(method, schedule=replace(method.schedule, peak=float("inf")))
    high = Growth("mlp", space_of("mlp"), method, budget=Budget(params="50%", spend="45%"), epochs=20)
    assert high.grower.expected_spend_frac <= 0.45
