"""``meristem list``: the recipes and the methods, each with a sentence."""

from __future__ import annotations

import argparse

from meristem.methods import METHODS
from meristem_bench.recipes import DENSE_SUFFIX, RECIPES


def show(args: argparse.Namespace) -> int:
    recipes = {name: make().about for name, make in RECIPES.items() if not name.endswith(DENSE_SUFFIX)}
    recipes[f"NAME{DENSE_SUFFIX}"] = "Each of them as the full model, trained the same way."
    methods = {name: (make.__doc__ or "").partition("\n")[0] for name, make in METHODS.items()}
    for name, make in METHODS.items():
        if make().needs_widths:
            methods[name] += " They are named by --set widths=RUN."
    for title, sentences in (
        ("recipes: meristem grow NAME", recipes),
        ("methods: --method NAME, or NAME:KEY=VALUE with a number or a choice of it changed", methods),
    ):
        print(title)
        width = max(map(len, sentences))
        for name, sentence in sentences.items():
            print(f"  {name:{width}}  {sentence}")
    return 0
