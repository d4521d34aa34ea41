"""Law 7. Same seed, same plan; every rank of a distributed run has the same plan.

Why: a plan that cannot be repeated cannot be studied, and replicas of different widths hang at the first all-reduce. So
every draw comes from the grower's own generator, nothing is taken from or left in the user's global random numbers, and
in a distributed run rank 0 decides.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from growing import PRESETS, Growth, assert_same, everything
from helpers import masks_equal
from two_ranks import on_two_ranks

NETS = ("resnet", "attention_matmul", "lstm_lm")


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        *((NETS[row % 3], preset) for row, preset in enumerate(PRESETS)),
        ("attention_matmul", "default"),
        ("lstm_lm", "default"),
        *(("deep_tuples", preset) for preset in PRESETS),
    ],
)
def test_same_seed_same_run(name: str, preset: str, space_of) -> None:
    """Two runs from the same seeds are the same in every bit: plans, weights, moments, store, records."""
    runs = []
    for _ in range(2):
        torch.manual_seed(1)
        runs.append(everything(Growth(name, space_of(name), preset, epochs=4, seed=3).go()))
    assert_same(runs[0], runs[1])


def masks(preset: str, space_of, seed: int) -> dict[str, np.ndarray]:
    torch.manual_seed(1)
    return Growth("plain", space_of("plain"), preset, epochs=4, seed=seed).go().grower.live.masks


@pytest.mark.parametrize("preset", ["random", "gates", "paper"])
def test_another_seed_may_give_another_plan(preset: str, space_of) -> None:
    """Where units are drawn, the seed decides which: among a few seeds two differ."""
    first, *others = [masks(preset, space_of, seed) for seed in range(4)]
    assert any(not masks_equal(first, other) for other in others)


@pytest.mark.parametrize("preset", PRESETS)
def test_global_random_numbers_are_left_alone(preset: str, space_of) -> None:
    """Making a grower, deciding, resizing and exporting neither take from nor set the user's random numbers."""

    def now() -> tuple[list[int], object, list[int]]:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    before = now()
    growth = Growth("resnet", space_of("resnet"), preset, epochs=3, steps=99)
    assert now() == before
    for _ in range(3):
        growth.go(growth.done + 1)
        before = now()
        growth.grower.step()
        growth.grower.export()
        assert now() == before


def test_global_random_numbers_do_not_decide(space_of) -> None:
    """With the same gradients, the plan is the same wherever the global generators stand."""
    found = []
    for seed in (1, 2):
        growth = Growth("resnet", space_of("resnet"), "gates", epochs=3)
        data = torch.Generator().manual_seed(0)
        for _ in range(3):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            for parameter in growth.model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=data)
            growth.optimizer.step()
            growth.grower.step()
        found.append(growth.grower.live.masks)
    assert masks_equal(*found)


# --- ranks --------------------------------------------------------------------------------------------------------

# Each rank builds its own weights and sees its own data. After each epoch the ranks compare their masks, parameters and
# moments, as they are before the next forward pass, and rank 0 writes down what was found.
BEFORE = """
from growing import Growth, batch
from helpers import loss, run, snapshot
from deep import DEEP
from zoo import ZOO

spaces = {name: meristem.trace(*ZOO[name].build()) for name in ("plain", "attention_matmul")}
deep_space = meristem.trace(*DEEP["deep_residual"].build(), depth=True)
Growth("plain", spaces["plain"])  # torch loads what it loads late, once for both
"""

SCRIPT = """
for name in spaces:
    for preset in ("default", "search", "random", "gates", "paper", "uniform"):
        if name != "plain" and preset not in ("default", "paper"):
            continue
        model, inputs = ZOO[name].build(seed=rank)
        wrapped = DDP(model)
        optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        grower = meristem.Grower(
            wrapped, optimizer, inputs, budget=meristem.Budget(params="50%"), epochs=4, method=preset,
            space=spaces[name],
        )
        torch.manual_seed(100 + rank)
        epochs = []
        for epoch in range(4):
            for _ in range(2):
                optimizer.zero_grad()
                data = batch(inputs)
                loss(run(wrapped, data)).backward()
                optimizer.step()
            grower.step()
            state = {k: v for k, v in snapshot(model, optimizer).items() if "running" not in k}
            epochs.append({
                "widths": alike(grower.widths),
                "masks": alike({group: mask.tolist() for group, mask in grower.live.masks.items()}),
                "parameters": alike(digest(dict(model.named_parameters()))),
                "moments": alike(digest(state)),
                "data": alike(data[0].tolist()),
            })
        epochs[-1]["moved"] = len({json.dumps(record["widths"]) for record in grower.records}) > 1
        found[f"{name} {preset}"] = epochs

# Gates of blocks are learned from what goes through them, which is other data on every rank.
from dataclasses import replace
model, inputs = DEEP["deep_residual"].build(seed=rank)
wrapped = DDP(model)
optimizer = optim.SGD(model.parameters(), lr=0.05)
method = meristem.methods.METHODS["paper"]()
method = replace(method, scores=replace(method.scores, per_run=False))
grower = meristem.Grower(
    wrapped, optimizer, inputs, budget=meristem.Budget(params="60%"), epochs=4, method=method,
    space=deep_space,
)
torch.manual_seed(200 + rank)
found["blocks"] = []
for epoch in range(4):
    for _ in range(2):
        optimizer.zero_grad()
        loss(run(wrapped, batch(inputs))).backward()
        optimizer.step()
    before = grower._growth.decider.keeper.scores(grower._growth.gating.signals())
    grower.step()
    found["blocks"].append([
        alike({group: values.tolist() for group, values in before.items()}),
        any(abs(float(before[group][0]) - 2.5) > 1e-6 for group in grower.space.blocks if grower.live.masks[group][0]),
    ])

# Other random numbers on every rank, so each would decide otherwise.
model, inputs = ZOO["plain"].build()
optimizer = optim.SGD(model.parameters(), lr=0.05)
method = meristem.methods.METHODS["gates"]()
grower = meristem.Grower(
    model, optimizer, inputs, budget=meristem.Budget(params="50%"), epochs=4, method=method, space=spaces["plain"],
    seed=rank,
)
found["seed"] = alike(grower.seed)
grower._growth.decider.rng = np.random.default_rng(rank)
found["rank 0 decides"] = []
for epoch in range(4):
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    grower.step()
    found["rank 0 decides"].append(alike({group: mask.tolist() for group, mask in grower.live.masks.items()}))

# Gradients that nobody averages: the ranks drift apart.
model, _ = ZOO["plain"].build()
optimizer = optim.SGD(model.parameters(), lr=0.05)
grower = meristem.Grower(model, optimizer, inputs, budget="90%", epochs=1, space=spaces["plain"])
for parameter in model.parameters():
    parameter.grad = torch.full_like(parameter, 1.0 + rank)
optimizer.step()
try:
    grower.step()
    found["drift"] = ""
except meristem.MeristemError as error:
    found["drift"] = str(error)
"""


def test_ranks_agree(tmp_path: Path) -> None:
    """Two processes, other initial weights and other data on each: equal widths, masks, parameters and moments after
    every epoch. (Running statistics are a rank's own until the next forward pass; that is torch's way.)"""
    found = on_two_ranks(BEFORE, SCRIPT, tmp_path)
    assert found.pop("seed")
    assert found.pop("rank 0 decides") == [True] * 4
    assert "have different parameters: their gradients are not averaged" in found.pop("drift")
    assert [same for same, _ in found["blocks"]] == [True] * 4
    assert any(moved for _, moved in found.pop("blocks"))
    assert len(found) == len(PRESETS) + 2
    for run, epochs in found.items():
        for number, epoch in enumerate(epochs):
            for what in ("widths", "masks", "parameters", "moments"):
                assert epoch[what], f"{run}: the {what} differ after epoch {number + 1}"
            assert not epoch["data"], f"{run}: both ranks saw the same data, so this shows nothing"
    assert found["plain default"][-1]["moved"]
