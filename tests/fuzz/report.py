"""A defect as text: its seed, what is wrong, and the shortest module that shows it."""

from __future__ import annotations

from fuzz.check import Verdict, examine
from fuzz.recipe import Recipe, source_of
from fuzz.shrink import shrunk


def report(recipe: Recipe, verdict: Verdict) -> str:
    small = shrunk(recipe, lambda other: examine(other).kind == verdict.kind)
    head = f"{verdict.kind}, seed {recipe.seed}: {examine(small).message}"
    again = f'python -m fuzz --recipe "{small}"'
    return "\n".join([head, again, source_of(small).text()])
