"""Laws 2, 3, 4, 5 and 8 with blocks that come and go.

Why: a block is one more unit, only a large one. It owns dimension 0 of all its tensors and every term of its cost, so
whatever holds for units must hold for it, alone and mixed with them, in the middle of training, whether it is replaced
by an identity or dropped from its list.
"""

from __future__ import annotations

import copy
import math
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn, optim
from torch.utils.flop_counter import FlopCounterMode

import meristem
from deep import DEEP, DROPPED
from helpers import (
    OPTIMIZERS,
    RandomGates,
    Target,
    assert_all_near,
    assert_is_masked_reference,
    assert_same_bits,
    build,
    go,
    half,
    loss,
    random_target,
    run,
    snapshot,
    train,
    whole,
    with_gates,
)
from meristem import Live, Space, count_macs, count_params

TESTS = Path(__file__).parents[1]
nets = pytest.mark.parametrize("name", DEEP)
kinds = pytest.mark.parametrize("kind", ["sgd", "adamw_amsgrad"])
SAVED = ("deep_residual", "deep_encoder", "deep_mixer")
seeds = st.lists(st.integers(0, 10_000), min_size=1, max_size=2)


def without(space: Space, *blocks: str) -> Target:
    """A target for these blocks alone (default: all): they are absent."""
    return {group: [] for group in blocks or space.blocks}


def last_block(space: Space) -> str:
    return list(space.blocks)[-1]


def shapes(live: Live) -> dict[str, tuple[int, ...]]:
    return {name: tuple(live.tree.tensor(name).shape) for name in live.space.tensors}


# --- law 2 --------------------------------------------------------------------------------------------------------


@kinds
@nets
def test_detach_then_recall(name: str, kind: str, space_of) -> None:
    model, inputs = build(name, torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    live = Live(model, space_of(name), optimizer)
    modules = dict(model.named_modules())
    train(model, optimizer, inputs, 2)
    before = snapshot(model, optimizer)
    rng = np.random.default_rng(5)
    go(live, random_target(live.space, rng))
    go(live, without(live.space))
    assert len(live.tree.absent) == len(live.space.blocks)
    go(live, random_target(live.space, rng))
    go(live, whole(live.space))
    assert_same_bits(snapshot(model, optimizer), before)
    assert {path: id(module) for path, module in model.named_modules()} == {
        path: id(module) for path, module in modules.items()
    }
    assert [path for path, _ in model.named_modules()] == list(modules)


@kinds
@nets
def test_grow_then_detach(name: str, kind: str, space_of) -> None:
    space = space_of(name)
    model, inputs = build(name, torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    start = half(space) | without(space, *list(space.blocks)[::2])
    live = Live(model, space, optimizer, start=start)
    train(model, optimizer, inputs, 2)
    before = snapshot(model, optimizer)
    go(live, whole(space))
    go(live, start)
    assert_same_bits(snapshot(model, optimizer), before)


@pytest.mark.parametrize(("kind", "set_to_none"), [("sgd", True), ("adamw_amsgrad", False)])
@nets
def test_an_absent_block_waits_while_the_rest_trains(name: str, kind: str, set_to_none: bool, space_of) -> None:
    """Weights, statistics, moments and counters of steps: nothing of it moves, whatever the user's loop does."""
    space = space_of(name)
    model, inputs = build(name, torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    live = Live(model, space, optimizer)
    train(model, optimizer, inputs, 2)
    group = last_block(space)
    path = space.blocks[group].path

    def of_block() -> dict[str, Tensor]:
        held = snapshot(model, optimizer)
        return {key: value for key, value in held.items() if f" {path}." in key}

    before, rest = of_block(), snapshot(model, optimizer)
    assert len(before) > 5
    go(live, without(space, group))
    assert not of_block()
    for _ in range(2):
        loss(run(model, inputs)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
    go(live, whole(space))
    assert_same_bits(of_block(), before)
    after = snapshot(model, optimizer)
    assert any(not torch.equal(after[key], value) for key, value in rest.items()), "the rest did not train"


@pytest.mark.parametrize(("kind", "together"), [("adam", False), ("adamw_amsgrad", True), ("rmsprop_centered", True)])
def test_units_that_grow_in_an_absent_block_have_sensible_moments(kind: str, together: bool, space_of) -> None:
    """A unit that never lived starts with the mean of the others' second moments, also where the others are away."""
    space = space_of("deep_residual")
    model, inputs = build("deep_residual", torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    live = Live(model, space, optimizer, start=half(space))
    train(model, optimizer, inputs, 3)
    group = last_block(space)
    go(live, without(space, group))
    train(model, optimizer, inputs, 1)
    if not together:
        inside = [name for name, block in space.enclosing_block.items() if block == group]
        go(live, {name: range(space.groups[name].units) for name in inside})
    go(live, whole(space))
    for parameter in model.parameters():
        for value in optimizer.state[parameter].values():
            assert value.isfinite().all()
            assert not value.dim() or value.shape == parameter.shape
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train(model, optimizer, inputs, 1)
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
        assert float((parameter - before[name]).detach().abs().max()) < 0.2, name


def test_a_block_comes_back_in_the_mode_of_its_surroundings(space_of) -> None:
    space = space_of("deep_residual")
    model, _ = build("deep_residual", torch.float32)
    live = Live(model.train(), space)
    block = model.stages[0][1]
    block.bn1.eval()  # frozen by the user
    go(live, without(space))
    assert model.stages[0][1].training != model.stages[0][1].eval().training
    model.train()
    go(live, whole(space))
    assert model.stages[0][1] is block
    assert block.training
    assert not block.bn1.training, "what the user froze stays frozen"
    go(live, without(space))
    model.eval()
    go(live, whole(space))
    assert not any(module.training for module in model.modules())


# --- law 3 --------------------------------------------------------------------------------------------------------


@nets
def test_count_is_what_torch_counts(name: str, space_of) -> None:
    space = space_of(name)
    model, inputs = build(name, torch.float32)
    live = Live(model, space)
    rng = np.random.default_rng(7)
    targets = [{}, random_target(space, rng), {g: range(k.min_units) for g, k in space.groups.items()}]
    for target in (*targets, whole(space) | without(space), random_target(space, rng)):
        go(live, target)
        meta = copy.deepcopy(model).eval().to("meta")
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            meta(*(x.to("meta") for x in inputs))
        assert count_params(space, live.widths) == sum(p.numel() for p in model.parameters())
        assert 2 * count_macs(space, live.widths) == counter.get_total_flops()
        assert count_params(space, live.widths) == sum(
            math.prod(shape) for key, shape in shapes(live).items() if space.tensors[key].is_parameter
        ), "something of an absent block is left"


@nets
def test_fractional_widths_interpolate(name: str, space_of) -> None:
    """Half a block costs half of it; the cost rises with every unit and every block, inside and outside of blocks."""
    space = space_of(name)
    rng = np.random.default_rng(11)
    widths = {group: rng.uniform(g.min_units, g.units) for group, g in space.groups.items()}
    for count in (count_params, count_macs):
        below = count(space, {group: math.floor(width) for group, width in widths.items()})
        above = count(space, {group: math.ceil(width) for group, width in widths.items()})
        assert count(space, space.smallest) <= below <= count(space, widths) <= above <= count(space)
        for group in space.groups:
            assert count(space, {**widths, group: widths[group] + 1e-3}) >= count(space, widths)
        for block in space.blocks:
            ends = [count(space, {**widths, block: share}) for share in (0.0, 0.25, 1.0)]
            assert ends[1] == pytest.approx(0.75 * ends[0] + 0.25 * ends[2])
            assert ends[0] < ends[2]
            for inner in [group for group, owner in space.enclosing_block.items() if owner == block]:
                away = {**widths, block: 0.0}
                assert count(space, {**away, inner: 1.0}) == count(space, away), "an absent block costs nothing"


# --- law 4 --------------------------------------------------------------------------------------------------------


@nets
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_the_shallowest_network(name: str, training: bool, space_of) -> None:
    """No block at all at full width, then one unit everywhere."""
    space = space_of(name)
    model, inputs = build(name)
    full = copy.deepcopy(model.train(training))
    live = Live(model, space)
    go(live, without(space))
    assert_is_masked_reference(live, full, inputs, RandomGates(space))
    go(live, {group: [] if g.min_units == 0 else [g.units - 1] for group, g in space.groups.items()})
    assert_is_masked_reference(live, full, inputs, RandomGates(space))


# --- law 5 --------------------------------------------------------------------------------------------------------


def shallow(name: str, space: Space) -> tuple[Live, meristem.Gates, tuple[Tensor, ...]]:
    """Half the units, some blocks absent."""
    return with_gates(name, space, half(space) | without(space, *list(space.blocks)[::2]))


@nets
def test_export_is_the_live_model(name: str, space_of) -> None:
    live, gates, inputs = shallow(name, space_of(name))
    with torch.no_grad():
        expected = run(live.model, inputs)
        plain = meristem.export(live, gates)
        assert_all_near(run(plain, inputs), expected, 1e-5)
        gates.detach()
        assert_all_near(run(meristem.export(live), inputs), run(live.model, inputs), 0.0)


@nets
def test_export_is_plain(name: str, space_of) -> None:
    """Original types but for the places of absent blocks; nothing of ours, and nothing of the absent blocks."""
    live, gates, _ = shallow(name, space_of(name))
    original = {path: type(module) for path, module in DEEP[name].build()[0].named_modules()}
    gone = live.tree.absent
    assert gone
    plain = meristem.export(live, gates)
    here = {path: type(module) for path, module in plain.named_modules()}
    expected = {p: kind for p, kind in original.items() if not any(p == b or p.startswith(f"{b}.") for b in gone)}
    assert here == expected | ({} if name in DROPPED else dict.fromkeys(gone, nn.Identity))
    for path, module in plain.named_modules():
        assert not module._forward_hooks, path
        assert not module._forward_pre_hooks, path
        assert "meristem" not in type(module).__module__ or "meristem_bench.models" in type(module).__module__
    assert all(tensor.numel() for tensor in plain.state_dict().values())


@nets
def test_saved_and_loaded(name: str, space_of, tmp_path: Path) -> None:
    """Into a fresh model of the full size; again and again; and into a model that is not it, not at all."""
    live, gates, inputs = shallow(name, space_of(name))
    meristem.save(live, tmp_path / "net", gates)
    fresh = meristem.load(tmp_path / "net", DEEP[name].build(seed=3)[0].eval())
    assert [p for p, _ in fresh.named_modules()] == [p for p, _ in live.model.named_modules()]
    with torch.no_grad():
        assert_all_near(run(fresh, inputs), run(live.model, inputs), 1e-5)
    with pytest.raises(meristem.MeristemError, match="does not fit"):
        meristem.load(tmp_path / "net", fresh)


LOAD = """
import sys
from pathlib import Path
import torch
import meristem
from deep import DEEP
torch.set_num_threads(1)
folder = Path(sys.argv[1])
for name in sys.argv[2:]:
    model = meristem.load(folder / name, DEEP[name].build(seed=1)[0].eval())
    with torch.no_grad():
        torch.save(model(*torch.load(folder / name / "inputs.pt")), folder / name / "outputs.pt")
"""


def test_another_process_computes_the_same(space_of, tmp_path: Path) -> None:
    expected = {}
    for name in SAVED:
        live, gates, inputs = shallow(name, space_of(name))
        meristem.save(live, tmp_path / name, gates)
        torch.save(inputs, tmp_path / name / "inputs.pt")
        with torch.no_grad():
            expected[name] = run(live.model, inputs)
    script = [sys.executable, "-c", LOAD, str(tmp_path), *SAVED]
    done = subprocess.run(script, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, outputs in expected.items():
        assert_all_near([torch.load(tmp_path / name / "outputs.pt")], outputs, 1e-5, name)


@nets
def test_a_pickle_of_it_needs_nothing_of_ours(name: str, space_of) -> None:
    """But for the nets themselves, some of which are in meristem_bench.models."""
    live, gates, _ = shallow(name, space_of(name))
    needed = {module for module, _ in globals_in(pickle.dumps(meristem.export(live, gates)))}
    assert "torch.nn.modules.linear" in needed
    assert not [module for module in needed if module.startswith("meristem") and "meristem_bench.models" not in module]


def globals_in(pickled: bytes) -> Iterator[tuple[str, str]]:
    """Everything a pickle would import."""
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, str) and "UNICODE" in opcode.name:
            strings.append(argument)
        elif opcode.name == "STACK_GLOBAL":
            yield strings[-2], strings[-1]
        elif opcode.name == "GLOBAL":
            module, _, name = argument.partition(" ")
            yield module, name


# --- law 8 --------------------------------------------------------------------------------------------------------


def slots(live: Live, optimizer: optim.Optimizer) -> list[list[str]]:
    """The names of the parameters in every param group, in order, those of absent blocks included."""
    names = {id(live.tree.tensor(name)): name for name in live.space.tensors}
    return [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]


@nets
@given(seeds=seeds, momentum=st.booleans())
def test_gradients_and_slots(name: str, space_of, seeds: list[int], momentum: bool) -> None:
    model, inputs = build(name, torch.float32)
    vectors = [p for p in model.parameters() if p.dim() < 2]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    parts = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0, "lr": 1e-4}]
    optimizer = optim.SGD(parts, lr=1e-3, momentum=0.9) if momentum else optim.AdamW(parts, lr=1e-3)
    live = Live(model, space_of(name), optimizer)
    before, groups = slots(live, optimizer), list(optimizer.param_groups)
    train(model, optimizer, inputs, 1)
    for seed in seeds:
        go(live, random_target(live.space, np.random.default_rng(seed)))
        assert slots(live, optimizer) == before
        assert all(now is then for now, then in zip(optimizer.param_groups, groups, strict=True))
        assert len(optimizer.state) == sum(map(len, before)), "state was lost"
        optimizer.zero_grad()
        loss(run(model, inputs)).backward()
        for key, parameter in model.named_parameters():
            assert parameter.grad is not None, key
            assert parameter.grad.shape == parameter.shape, key
            assert parameter.grad.isfinite().all(), key
        optimizer.step()
        for key, parameter in model.named_parameters():
            assert parameter.isfinite().all(), key
            assert all(v.shape in ((), parameter.shape) for v in optimizer.state[parameter].values()), key
