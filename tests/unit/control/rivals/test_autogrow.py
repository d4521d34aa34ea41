"""AutoGrow: one block at a time, stage by stage, until a stage no longer helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import meristem
from helpers import build
from meristem.control.rivals.autogrow import AutoGrow, autogrow
from meristem.errors import BudgetError, MeristemError
from meristem.space.space import Block, Stage
from meristem.surgery.fresh import AsBuilt, RandomLastNorm
from meristem_bench.models.depth_starts import basic3_resnet

STAGES = tuple(
    Stage(name, tuple(Block(f"{name}.{n}:block", f"{name}.{n}", "replaced") for n in (1, 2, 3)), 1) for name in "abc"
)


def grown(results: list[float], epochs: int, policy: AutoGrow) -> list[str | None]:
    """Which stage gets a block after each epoch that has these results."""
    blocks, records, found = dict.fromkeys("abc", 1), list[dict[str, Any]](), list[str | None]()
    for epoch, result in enumerate(results, 1):
        metrics = {"val_accuracy": result}
        records.append({"epoch": epoch, "progress": epoch / epochs, "blocks": dict(blocks), "metrics": metrics})
        stage = policy.next_stage(STAGES, records)
        found.append(stage.name if stage else None)
        if stage:
            blocks[stage.name] += 1
    return found


def test_stages_take_turns_as_long_as_results_get_better() -> None:
    rising = [0.1 * n for n in range(1, 13)]
    assert grown(rising, 12, AutoGrow()) == [*"abcabcabc", None, None, None]  # then all are full
    assert grown(rising[:6], 12, AutoGrow(every=2)) == [None, "a", None, "b", None, "c"]


def test_a_stage_that_does_not_help_is_finished() -> None:
    """The best result stays the same for three epochs: the stage that grew last stops, then the next one, and so on."""
    still = [0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6]
    assert grown(still, 12, AutoGrow(patience=0.25)) == ["a", "b", "c", "a", "b", "c", None, None]


def grower(budget: str = "100%", depth: bool = True, seed: int = 0) -> tuple[meristem.Grower, torch.nn.Module]:
    torch.manual_seed(0)
    model = basic3_resnet((3, 2, 3), width=4)
    example = torch.randn(1, 3, 8, 8)
    space = meristem.trace(model, example, depth=depth)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    settings = {"budget": meristem.Budget(params=budget), "epochs": 8, "method": autogrow(), "space": space}
    return meristem.Grower(model, optimizer, example, seed=seed, **settings), model


def epoch(growing: meristem.Grower, model: torch.nn.Module) -> None:
    images, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))
    growing.optimizer.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    growing.optimizer.step()


def test_it_starts_at_full_width_with_one_block_a_stage_and_only_grows() -> None:
    growing, model = grower()
    widths = [width for name, width in growing.widths.items() if not name.endswith(":block")]
    assert widths == [group.units for group in growing.space.groups.values() if group.kind != "depth"]
    seen = []
    for number in range(8):
        epoch(growing, model)
        seen.append(tuple(growing.step(val_accuracy=0.1 * number)["blocks"].values()))
    assert seen == [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (3, 2, 3), (3, 2, 3), (3, 2, 3)]
    assert growing.records[-1]["params_frac"] == 1.0


def started(growing: meristem.Grower, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The block that comes in after the first epoch, as it starts."""
    epoch(growing, model)
    growing.step(val_accuracy=0.1)
    return {name: tensor.clone() for name, tensor in model.stages[0][1].state_dict().items()}


def test_a_new_block_starts_with_a_random_last_norm(tmp_path: Path) -> None:
    """Scale and shift from N(0, 1), of the seed; all else as built; the same in a run that was resumed."""
    growing, model = grower()
    growing.checkpoint(tmp_path / "run")
    first = started(growing, model)
    for name in ("weight", "bias"):
        last, before = first[f"bn2.{name}"], first[f"bn1.{name}"]
        assert len(last.unique()) == len(last) == 4
        assert 0.2 < last.abs().mean() < 3
        assert before.unique().tolist() == [1.0 if name == "weight" else 0.0]
    assert not torch.equal(first["bn2.weight"], first["bn2.bias"])
    torch.manual_seed(5)
    growing, model = grower()
    growing.resume(tmp_path / "run")
    again = started(growing, model)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    other = started(*grower(seed=1))
    assert not torch.equal(first["bn2.weight"], other["bn2.weight"])
    assert torch.equal(first["conv2.weight"], other["conv2.weight"])


def test_a_block_without_a_batch_norm_starts_as_built(space_of) -> None:
    space = space_of("deep_masked")
    models = []
    for fresh in (RandomLastNorm(), AsBuilt()):
        model, _ = build("deep_masked")
        live = meristem.Live(model, space, start={group: [] for group in space.blocks}, fresh=fresh)
        live.apply(live.plan({group: [0] for group in space.blocks}))
        models.append(model.state_dict())
    assert models[0].keys() == models[1].keys()
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


def test_other_methods_start_blocks_as_built() -> None:
    assert not any(
        isinstance(make().fresh, RandomLastNorm)
        for name, make in meristem.methods.METHODS.items()
        if name != "autogrow"
    )


def test_a_budget_is_a_cap() -> None:
    growing, model = grower("60%")
    for number in range(8):
        epoch(growing, model)
        record = growing.step(val_accuracy=0.1 * number)
        assert record["params_frac"] <= 0.6
    with pytest.raises(BudgetError, match="the method's widths have"):
        grower("20%")


def test_what_it_needs() -> None:
    growing, model = grower()
    epoch(growing, model)
    with pytest.raises(MeristemError, match="autogrow decides by val_accuracy, which this epoch did not report"):
        growing.step(loss=1.0)
    record = growing.step(val_accuracy=0.5)  # what was refused did not count
    assert (record["epoch"], record["steps"], growing.epoch, len(growing.records)) == (1, 1, 1, 1)
    with pytest.raises(MeristemError, match="this space has none: trace the model with depth=True"):
        grower(depth=False)
