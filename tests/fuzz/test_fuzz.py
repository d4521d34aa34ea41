"""Random modules: what meristem makes of them is equal to the masked reference, or it refuses or pins.

The nightly form, with longer modules, is a command (``__main__.py``). A failure here prints the shortest module that
shows it, and the command that runs it again.
"""

from __future__ import annotations

import pytest

from fuzz.check import Verdict, examine
from fuzz.not_covered import NOT_COVERED
from fuzz.recipe import Recipe, random_recipe, recipe_from, source_of
from fuzz.report import report

MODELS, CHUNK, MOST_STEPS = 300, 25, 3


def verdicts(first: int) -> list[tuple[Recipe, Verdict]]:
    recipes = [random_recipe(seed, MOST_STEPS, frozenset(NOT_COVERED)) for seed in range(first, first + CHUNK)]
    return [(recipe, examine(recipe)) for recipe in recipes]


@pytest.mark.filterwarnings("ignore")  # of torch, about whatever the modules do
@pytest.mark.parametrize("first", range(0, MODELS, CHUNK))
def test_random_modules(first: int) -> None:
    found = verdicts(first)
    assert not [report(recipe, verdict) for recipe, verdict in found if verdict.is_defect]
    assert not [(verdict.message, source_of(recipe).text()) for recipe, verdict in found if verdict.kind == "invalid"]
    assert sum(verdict.free_frac for _, verdict in found) > 0.2 * CHUNK, (
        "nearly everything is pinned: nothing is tested"
    )


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_covered_goes_wrong() -> None:
    """The list of known faults is true: a construct that goes right is no longer left out."""
    right = [name for name, recipe in NOT_COVERED.items() if not examine(recipe_from(recipe)).is_defect]
    assert not right, f"these go right, so take them from NOT_COVERED: {', '.join(right)}"
