"""Law 1 and law 5 where a grower brings blocks in, and what becomes of the units inside.

Why: a block overrules its units. As long as it is absent they cost nothing, so a decision that counts cost alone would
take all of them; a unit that has never computed anything must come in as a fresh one whatever was decided before.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import meristem
from helpers import assert_all_near, loss, run
from meristem import Budget, Grower, Live, Space, methods
from meristem.surgery.fresh import ZeroOutgoing
from meristem_bench.models.depth_starts import basic3_resnet

X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def model() -> nn.Module:
    torch.manual_seed(0)
    return basic3_resnet((1, 1, 3), width=4)


@pytest.fixture(scope="module")
def space() -> Space:
    return meristem.trace(model(), X, depth=True)


def grower(space: Space, preset: str, amount: str = "90%", epochs: int = 12) -> Grower:
    built = model()
    optimizer = torch.optim.SGD(built.parameters(), lr=0.01)
    budget, method = Budget(params=amount), methods.parse_method(preset)
    return Grower(built, optimizer, X, space=space, budget=budget, epochs=epochs, method=method)


def train(found: Grower) -> None:
    found.model.train()
    found.optimizer.zero_grad()
    loss(run(found.model, (X,))).backward()
    found.optimizer.step()


@pytest.mark.parametrize("preset", ["default", "paper", "gates", "search"])
def test_what_lies_in_an_absent_block_stays_as_it_is(preset: str, space: Space) -> None:
    """One unit at the start; then what it had when the block went, whatever is decided meanwhile."""
    found = grower(space, preset)
    absent = {name: block for name, block in space.enclosing_block.items() if not found.live.masks[block][0]}
    assert absent
    assert all(found.widths[name] == 1 for name in absent)
    came = set()
    for _ in range(found.epochs):
        train(found)
        before = found.live.masks
        found.step()
        for name, block in space.enclosing_block.items():
            if not found.live.masks[block][0]:
                assert (before[name] == found.live.masks[name]).all()
            came |= {block} if found.live.masks[block][0] and name in absent else set()
        assert all((mask <= found.live.lived[name]).all() for name, mask in found.live.active.items())
    assert came, "no block ever came in"


def test_a_unit_that_follows_its_block_is_fresh(space: Space) -> None:
    """It has never computed anything: it does not matter that it was live while its block was absent."""
    block, inner = "stages.2.1:block", "stages.2.1.conv1"
    full = {name: range(group.units) for name, group in space.groups.items()}
    for while_absent in (16, 1):
        live = Live(model().eval(), space, start={**full, block: [], inner: range(while_absent)}, fresh=ZeroOutgoing())
        live.apply(live.plan({block: [0], inner: range(8)}))
        before = run(live.model, (X,))
        plan = live.plan({inner: range(12)})
        assert plan.changes[inner].grow == (8, 9, 10, 11)
        live.apply(plan)
        assert_all_near(run(live.model, (X,)), before, 1e-6)


def test_a_fresh_block_is_as_built_however_many_units_come_with_it(space: Space) -> None:
    """If they were read with zeros as units of an old network are, most of the block would be dead at first."""
    block, inner = "stages.2.1:block", "stages.2.1.conv1"
    full = {name: range(group.units) for name, group in space.groups.items()}
    read = []
    for while_absent in (16, 1):
        live = Live(model(), space, start={**full, block: [], inner: range(while_absent)}, fresh=ZeroOutgoing())
        live.apply(live.plan({block: [0], inner: range(8)}))
        read.append(live.tree.tensor("stages.2.1.conv2.weight"))
    assert torch.equal(*read)
    assert bool((read[0] != 0).all())


@pytest.mark.parametrize("preset", ["default", "search"])
def test_export_after_every_step_is_the_live_model(preset: str, space: Space, tmp_path: Path) -> None:
    """Also when blocks have just come in: those are shut, so the export and the files do without them."""
    found, shut = grower(space, preset), 0
    for epoch in range(found.epochs):
        train(found)
        found.step()
        live = run(found.model.eval(), (X,))
        assert_all_near(run(found.export().eval(), (X,)), live, 0.0)
        if found._growth.gating.shut_blocks:
            shut += 1
            found.save(tmp_path / str(epoch))
            assert_all_near(run(meristem.load(tmp_path / str(epoch), model()).eval(), (X,)), live, 1e-6)
    assert shut, "no block ever came in"
