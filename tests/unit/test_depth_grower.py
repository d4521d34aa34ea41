"""A grower on a model whose blocks may be absent: what it records, what ticks, what comes and goes, what it exports."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import meristem
from deep import DEEP
from growing import PRESETS, Growth, batch, scores_of
from helpers import assert_all_near, loss, run
from meristem import Budget, Method, methods
from meristem.control.rivals.autogrow import AutoGrow, autogrow
from meristem.control.schedule import Schedule
from meristem.gating.kinds import Sigmoid
from meristem.surgery.fresh import AsBuilt

MOVING = [preset for preset in PRESETS if preset != "uniform"]
presets = pytest.mark.parametrize("preset", PRESETS)


def hooks(model: nn.Module) -> list[str]:
    return [path for path, m in model.named_modules() if m._forward_hooks or m._forward_pre_hooks]


@presets
def test_history_counts_the_blocks_of_each_stage(preset: str, space_of) -> None:
    torch.manual_seed(0)
    growth = Growth("deep_residual", space_of("deep_residual"), preset, epochs=5)
    for _ in range(5):
        now = {
            name: sum(not isinstance(block, nn.Identity) for block in stage)
            for name, stage in zip(("stages.0", "stages.1", "stages.2"), growth.model.stages, strict=True)
        }
        growth.go(growth.done + growth.steps)
        assert growth.grower.records[-1]["blocks"] == now
        assert all(count >= 1 for count in now.values())


def test_models_without_stages_have_no_blocks_in_their_history(space_of) -> None:
    assert Growth("mlp", space_of("mlp"), epochs=2).go().grower.records[-1]["blocks"] == {}


@pytest.mark.parametrize("preset", MOVING)
def test_blocks_come(preset: str, space_of) -> None:
    """Small at the start, deeper at the end, and the blocks that came are trained."""
    torch.manual_seed(0)
    budget = Budget(params="90%")
    growth = Growth("deep_residual", space_of("deep_residual"), preset, epochs=6, budget=budget)
    first = growth.grower.live.tree.absent
    growth.go()
    counts = [sum(record["blocks"].values()) for record in growth.grower.records]
    assert first
    if preset != "paper":  # whose draws are free
        assert counts[-1] > counts[0]
    for parameter in growth.model.parameters():
        assert parameter.isfinite().all()
        assert parameter in growth.optimizer.state


@pytest.mark.parametrize("preset", ["random", "gates", "paper"])
def test_blocks_go_too(preset: str, space_of) -> None:
    """Some block that lived leaves again; its module is kept and comes back as the same one."""
    space, gone, back = space_of("deep_residual"), set[str](), set[str]()
    for seed in range(4):
        torch.manual_seed(seed)
        growth = Growth("deep_residual", space, preset, epochs=12, steps=1, seed=seed)
        before = growth.grower.live.masks
        modules = {block.path: growth.grower.live.tree.module(block.path) for block in space.blocks.values()}
        left = set[str]()
        for _ in range(12):
            growth.step()
            after = growth.grower.live.masks
            left |= {group for group in space.blocks if before[group][0] and not after[group][0]}
            back |= {group for group in left if after[group][0]}
            for path, module in modules.items():
                assert growth.grower.live.tree.module(path) is module
            before = after
        gone |= left
    assert gone, "no block ever left"


@pytest.mark.parametrize("preset", ["default:peak=1.2", "gates:peak=1.2", "paper:counts_draws=no"])
def test_what_is_inactive_does_not_tick(preset: str, space_of) -> None:
    """Units of an absent block take no part: no epoch is counted for their temperature, and none is recorded."""
    torch.manual_seed(0)
    space = space_of("deep_residual")
    growth = Growth("deep_residual", space, preset, epochs=6)
    grower = growth.grower
    seen = False
    while grower.epoch < 6:
        drawn = {name: values.copy() for name, values in grower._growth.progress.drawn.items()}
        scores = scores_of(grower)
        inactive = [g for g, owner in space.enclosing_block.items() if not grower.live.masks[owner][0]]
        assert grower.live.inactive_groups == set(inactive)
        masks = grower.live.masks
        absent = [group for group in space.blocks if not masks[group][0]]
        growth.go(growth.done + growth.steps)
        for name in (*inactive, *absent):
            assert np.array_equal(grower._growth.progress.drawn[name], drawn[name]), name
            assert name not in grower.records[-1]["temperature"]
            assert name not in grower.records[-1]["temperature_with_absent"]
            assert name not in grower.records[-1]["scores"]
            if preset.startswith("default"):
                assert np.array_equal(scores_of(grower)[name], scores[name]), name
        for name in set(space.groups) - {*inactive, *absent}:
            assert np.array_equal(grower._growth.progress.drawn[name], drawn[name] + masks[name])
        seen |= bool(inactive)
    assert seen


@pytest.mark.parametrize("preset", ["default:peak=1.2", "search"])
def test_live_blocks_have_evidence(preset: str, space_of) -> None:
    torch.manual_seed(0)
    budget = Budget(params="90%")
    grower = Growth("deep_masked", space_of("deep_masked"), preset, epochs=6, budget=budget).go(4).grower
    scores = scores_of(grower)
    for group in grower.space.blocks:
        assert (scores[group][0] > 0) == bool(grower.live.lived[group][0]) or grower.epoch < 3


# --- blocks come in shut -----------------------------------------------------------------------------------------


def one_by_one(opening: float) -> Method:
    """Blocks of full width come in, nothing else happens."""
    return replace(autogrow(), controller=AutoGrow(metric="loss", patience=1.0), fresh=AsBuilt(), opening=opening)


@pytest.mark.parametrize("name", ["deep_residual", "deep_plain", "deep_masked"])
@pytest.mark.parametrize("opening", [1.0, 2.0])
def test_a_new_block_changes_nothing_and_opens_step_by_step(name: str, opening: float, space_of) -> None:
    torch.manual_seed(0)
    growth = Growth(name, space_of(name), one_by_one(opening), epochs=8, steps=4, budget=Budget(params="100%"))
    grower, inputs = growth.grower, growth.inputs
    growth.go(3)
    with torch.no_grad():
        growth.model.eval()
        before, absent = run(growth.model, inputs), grower.live.tree.absent
    grower._growth.progress = (
        grower._growth.progress.after_step()
    )  # as if there had been a fourth, so that nothing is different but the block
    grower.step(loss=1.0)
    growth.done = 4
    (path,) = set(absent) - set(grower.live.tree.absent)
    group = next(group for group, block in grower.space.blocks.items() if block.path == path)
    with torch.no_grad():
        assert_all_near(run(growth.model, inputs), before, 0.0)
    growth.model.train()
    gates = []
    for step in range(5, 8):
        growth.go(step)
        gates.append(float(grower._growth.gating._block_gates.gate(group)))
    assert gates == pytest.approx([share / opening for share in (0.25, 0.5, 0.75)])
    growth.go(4 + 4 * round(opening))
    assert grower._growth.gating._block_gates.gate(group) is None
    growth.go()
    assert hooks(growth.model) == []


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's compiler looks at it
def test_a_compiled_model_opens_its_blocks_too(space_of) -> None:
    """The gate is read anew in every step, not compiled in."""
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        growth = Growth("deep_plain", space_of("deep_plain"), one_by_one(1.0), epochs=4, steps=3)
        plain, opened = growth.model, set[float]()
        for _ in range(4):
            torch.compiler.reset()
            growth.model = torch.compile(plain, backend="eager", dynamic=False) if compiled else plain
            for _ in range(3):
                opened |= {float(gate) for gate in growth.grower._growth.gating._opening._gates.values()}
                growth.step()
        losses.append(growth.losses)
        assert sorted(opened) == pytest.approx([0, 1 / 3, 2 / 3])
    assert losses[0] == pytest.approx(losses[1])


def test_the_first_network_is_open(space_of) -> None:
    method = replace(methods.METHODS["default"](), schedule=Schedule(start=1.0))
    growth = Growth("deep_residual", space_of("deep_residual"), method, budget=Budget(params="90%"), epochs=4)
    grower = growth.grower
    first = [group for group in grower.space.blocks if grower.live.masks[group][0]]
    assert first
    assert all(grower._growth.gating._block_gates.gate(group) is None for group in first)
    growth.go(growth.steps)
    assert all(grower._growth.gating._block_gates.gate(group) is None for group in first)


@pytest.mark.parametrize("opening", [-1.0, float("inf"), float("nan")])
def test_an_opening_that_is_no_number_of_epochs_is_refused(opening: float) -> None:
    with pytest.raises(meristem.MeristemError, match="opening must be a number of epochs, at least 0, got"):
        Method(opening=opening)


# --- export -------------------------------------------------------------------------------------------------------


def test_counters_of_the_paper_tick_after_the_draw(space_of) -> None:
    """Algorithm 1: a unit that is drawn ticks, before it is trained; the first network has not been drawn."""
    torch.manual_seed(0)
    space = space_of("deep_residual")
    growth = Growth("deep_residual", space, "paper", epochs=6)
    grower = growth.grower
    assert not any(values.any() for values in grower._growth.progress.drawn.values())
    while grower.epoch < 5:
        before = {name: values.copy() for name, values in grower._growth.progress.drawn.items()}
        growth.go(growth.done + growth.steps)
        for name, drawn in grower._growth.progress.drawn.items():
            ticks = grower.live.masks[name] & (name not in grower.live.inactive_groups)
            assert np.array_equal(drawn, before[name] + ticks), name


@presets
@pytest.mark.parametrize("name", ["deep_residual", "deep_masked"])
def test_export_in_the_middle_of_a_run(name: str, preset: str, space_of, tmp_path: Path) -> None:
    """No hook of ours is in it, it is no larger than the model, and it computes what the model computes.

    Soft gates of blocks are the exception: there is no place in a plain block to fold them into. They are open.
    """
    torch.manual_seed(0)
    growth = Growth(name, space_of(name), preset, epochs=6).go(6)
    inputs = batch(growth.inputs)
    growth.model.eval()
    plain = growth.grower.export()
    assert hooks(plain) == []
    growth.grower.save(tmp_path / "net")
    fresh = meristem.load(tmp_path / "net", DEEP[name].build(seed=5)[0].eval())
    soft = isinstance(growth.grower.method.gate, Sigmoid)
    if soft:
        growth.grower._growth.gating._block_gates.detach()
    with torch.no_grad():
        expected = run(growth.model, inputs)
        assert_all_near(run(plain, inputs), expected, 1e-5)
        assert_all_near(run(fresh, inputs), expected, 1e-5)
    if soft:
        growth.grower._growth.gating._block_gates.attach()
    growth.model.train()
    growth.go()


@presets
def test_after_the_last_epoch_nothing_of_ours_is_left_but_the_gates(preset: str, space_of) -> None:
    torch.manual_seed(0)
    growth = Growth("deep_residual", space_of("deep_residual"), preset, epochs=4).go()
    if growth.grower._growth.gating._unit_gates is None:
        assert hooks(growth.model) == []
    inputs = batch(growth.inputs)
    growth.model.eval()
    with torch.no_grad():
        assert_all_near(run(growth.grower.export(), inputs), run(growth.model, inputs), 1e-5)


def test_nobody_listens_after_the_freeze(space_of) -> None:
    """Nothing is decided any more, so nothing is read on the way back."""
    torch.manual_seed(0)
    growth = Growth("deep_residual", space_of("deep_residual"), "default:peak=1.2", epochs=8)
    last = growth.grower.trajectory.last_decision
    growth.go(growth.steps * (last - 1))
    assert hooks(growth.model)
    growth.go(growth.steps * last)
    assert growth.grower.epoch < 8
    assert hooks(growth.model) == []


def test_nobody_listens_while_a_plan_only_rises(space_of) -> None:
    """Groups keep their proportions and no unit goes, so importance would decide nothing."""
    torch.manual_seed(0)
    growth = Growth("deep_residual", space_of("deep_residual"), "default:opening=0", epochs=8)
    assert not growth.grower._growth.decider.scores_steps(0)
    falls = Growth("deep_residual", space_of("deep_residual"), "default:peak=1.2", epochs=8)
    assert falls.grower._growth.decider.scores_steps(0)


def test_a_copy_by_the_user_does_not_drag_the_grower_along(space_of) -> None:
    """An average of the weights is a deep copy of the model, made while it grows."""
    torch.manual_seed(0)
    growth = Growth("deep_residual", space_of("deep_residual"), "default:peak=1.2", epochs=6).go(6)
    twin = copy.deepcopy(growth.model)
    held = [h for m in twin.modules() for h in m._forward_hooks.values()]
    assert not any(getattr(hook, "_block_gates", None) is not None for hook in held)
    loss(run(twin.eval(), growth.inputs)).backward()
    assert growth.grower._growth.gating._block_gates.take_pulls() == {}
    growth.model.eval()
    with torch.no_grad():
        assert_all_near(run(twin, growth.inputs), run(growth.model, growth.inputs), 0.0)
    growth.model.train()
    growth.go()


def test_direct_design_names_blocks(space_of) -> None:
    """Widths of blocks are 0 or 1; what is asked for is what is trained."""
    space = space_of("deep_residual")
    widths = {**space.full, "stages.0.1:block": 0, "stages.2.1:block": 0}
    method = methods.METHODS["uniform"]()
    growth = Growth(
        "deep_residual",
        space,
        method.with_widths(widths),
        epochs=2,
        budget=Budget(params="100%"),
    ).go()
    assert growth.grower.widths == widths
    assert growth.grower.live.tree.absent == ("stages.0.1", "stages.2.1")
