"""Shrinking: the shortest recipe that shows the same kind of defect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuzz.recipe import Recipe


def shrunk(recipe: Recipe, shows_it: Callable[[Recipe], bool]) -> Recipe:
    """Leave out steps, one after the other, as long as the defect is there."""
    at = 0
    while at < len(recipe.steps):
        shorter = replace(recipe, steps=recipe.steps[:at] + recipe.steps[at + 1 :])
        if shows_it(shorter):
            recipe, at = shorter, 0
        else:
            at += 1
    return recipe
