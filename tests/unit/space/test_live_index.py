"""Where live units stand, against masks read one by one."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import build, go
from meristem import Live


@pytest.mark.parametrize("name", ["resnet", "lstm_lm", "deep_residual"])
def test_the_flat_list_has_every_unit_that_takes_part_once(name: str, space_of) -> None:
    """In the order of the groups, and of the units in each; it follows every change of the network."""
    space = space_of(name)
    live = Live(build(name)[0], space)
    rng = np.random.default_rng(0)
    for _ in range(3):
        units = [(group, unit) for group, mask in live.active.items() for unit in np.flatnonzero(mask)]
        index = live.active_index
        assert index.size == len(units)
        assert [int(index.places(group)[unit]) for group, unit in units] == list(range(len(units)))
        assert index is live.active_index, "built once per version"
        go(live, {group: rng.permutation(full)[: rng.integers(1, full + 1)] for group, full in space.full.items()})
        go(live, {group: [0] * int(rng.integers(0, 2)) for group in space.blocks})
        assert index is not live.active_index


@pytest.mark.parametrize("name", ["resnet", "swiglu", "deep_residual"])
def test_owners_of_live_positions_are_live_units(name: str, space_of) -> None:
    """One owner for each live position; blocks own positions too, but are no units."""
    space = space_of(name)
    live = Live(build(name)[0], space)
    go(live, {group: range(0, full, 2) for group, full in space.full.items() if group not in space.blocks})
    owned = set()
    for site in space.sites:
        owners = live.owners(site.axis)
        assert [group for group, _ in owners] == [part.group for part in space.unit_parts(site.axis)]
        for group, units in owners:
            assert len(units) == len(live.positions(site.axis))
            assert live.masks[group][units[units >= 0]].all()
            owned.add(group)
    assert owned == set(space.groups) - set(space.blocks)
