"""A defect as text: its seed, what is wrong, and the shortest module that shows it."""

from __future__ import annotations

from fuzz.check import Verdict, examine
from fuzz.recipe import Recipe, source_of
from fuzz.shrink import shrunk


def report(recipe: Recipe, verdict: Verdict) -> str:
    small = shrunk(recipe, lambda other: examine(other).kind == verdict.kind)
    steps = ", ".join(f"{step.construct}:{step.seed}" for step in small.steps)
    lines = [f"seed {recipe.seed}, {verdict.kind}: {examine(small).message}", f"{small.domain} {steps}", source_of(small).text()]
    return "\n".join(lines)
