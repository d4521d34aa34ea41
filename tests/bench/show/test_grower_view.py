"""What is shown of a grower follows its network."""

from __future__ import annotations

import torch

from growing import Growth
from meristem.history import live_blocks
from meristem_bench.runs.task_metric import metric
from meristem_bench.show.grower_view import GrowerView


def test_rows_of_an_absent_block_are_empty_and_come_with_it(space_of) -> None:
    """On a network whose blocks come and go: bars are what takes part, and only of units that have a width."""
    torch.manual_seed(0)
    space = space_of("deep_residual")
    growth = Growth("deep_residual", space, "random", epochs=7, steps=1)
    view, absent, came = GrowerView(growth.grower), 0, 0
    for _ in range(7):
        before = {row.name: row for row in view.rows}
        growth.step()
        view.update({**growth.grower.records[-1], "metrics": {"train_loss": 1.0}}, metric("accuracy"))
        assert [row.name for row in view.rows] == [name for name in space.groups if name not in space.blocks]
        for row in view.rows:
            block = space.enclosing_block.get(row.name)
            present = block is None or growth.grower.widths[block]
            assert row.live == (growth.grower.widths[row.name] if present else 0)
            assert row.live == before[row.name].live + row.came - row.gone
            absent += not present
            came += block is not None and bool(row.live) and not before[row.name].live
        blocks = "-".join(map(str, live_blocks(space, growth.grower.live.masks).values()))
        assert view.numbers[-1] == f"blocks {blocks} of 3-2-2"
    assert absent
    assert came
