"""Plans: what is kept, grown, restored and pruned, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from meristem.errors import PlanError
from meristem.space.plan import Change, Plan, plan_to
from meristem.space.space import Group, Space

SPACE = Space({"a": Group("a", 4, "width"), "b": Group("b", 2, "width")}, (), {}, (), (), (), ())
ALL = {"a": np.ones(4, dtype=np.bool_), "b": np.ones(2, dtype=np.bool_)}


def test_four_fates() -> None:
    """Wanted: live is kept, once alive is restored, never alive is grown. Not wanted: live is pruned."""
    live = {**ALL, "a": np.array([True, True, False, False])}
    lived = {**ALL, "a": np.array([True, True, True, False])}
    plan = plan_to(SPACE, {"a": [3, 2, 0]}, live, lived)
    assert plan.changes["a"] == Change(keep=(0,), grow=(3,), restore=(2,), prune=(1,))
    assert plan.changes["a"].live == (0, 2, 3)
    assert "b" not in plan.changes


def test_frozen() -> None:
    plan = Plan({"a": Change((0,))})
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.changes = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        plan.changes["a"] = Change((1,))  # type: ignore[index]


def test_a_plan_does_not_follow_the_dict_it_was_made_from() -> None:
    changes = {"a": Change((0,))}
    plan = Plan(changes)
    changes["b"] = Change((1,))
    assert list(plan.changes) == ["a"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"c": [0]}, r"no group 'c'; it has a, b"),
        ({"a": []}, r"group 'a' would be empty; at least one of its 4 units"),
        ({"a": [0, 4]}, r"group 'a' has units 0 to 3, got 0 to 4"),
        ({"a": [-1]}, r"group 'a' has units 0 to 3, got -1 to -1"),
    ],
)
def test_refused(target, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_to(SPACE, target, ALL, ALL)


@pytest.mark.parametrize("units", [[0.5], ["x"], 3, [True, False, True, False], np.array([True, False, True, False])])
def test_units_that_are_not_numbers_of_units(units) -> None:
    """A mask or a fraction would silently mean other units than were asked for."""
    with pytest.raises(PlanError, match="'a'"):
        plan_to(SPACE, {"a": units}, ALL, ALL)


def test_many_groups_are_not_all_named() -> None:
    space = Space({f"g{n}": Group(f"g{n}", 2, "width") for n in range(9)}, (), {}, (), (), (), ())
    with pytest.raises(PlanError, match=r"g0, g1, g2, g3, g4, g5, \.\.\. \(9 in all\)"):
        plan_to(space, {"x": [0]}, {}, {})
