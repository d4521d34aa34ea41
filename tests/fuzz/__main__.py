"""The fuzzer as a command: ``cd tests && python -m fuzz --models 10000``. It ends with 1 if it found a defect."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter

import torch

from fuzz.check import Verdict, examine
from fuzz.not_covered import NOT_COVERED
from fuzz.recipe import random_recipe, recipe_from, source_of
from fuzz.report import report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--models", type=int, default=300, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the seed of the first one")
    parser.add_argument("--steps", type=int, default=5, help="at most so many constructs in one (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="with the constructs that are known not to be covered")
    parser.add_argument("--verbose", action="store_true", help="print every module that is no defect, too")
    parser.add_argument("--recipe", help="this one module, as a report printed it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    leave_out = frozenset() if options.all else frozenset(NOT_COVERED)
    kinds: Counter[str] = Counter()
    free = 0.0
    start = time.process_time()
    seeds = range(options.first, options.first + options.models)
    random_ones = (random_recipe(seed, options.steps, leave_out) for seed in seeds)
    for recipe in [recipe_from(options.recipe)] if options.recipe else random_ones:
        verdict = examine(recipe)
        kinds[verdict.kind] += 1
        free += verdict.free_frac
        if verdict.is_defect:
            print(report(recipe, verdict), flush=True)
        elif options.verbose or verdict.kind == "invalid":
            print(f"{verdict.kind}, seed {recipe.seed}: {verdict.message}\n{source_of(recipe).text()}", flush=True)
    print(_summary(kinds, free / sum(kinds.values()), time.process_time() - start))
    return int(any(Verdict(kind).is_defect for kind in kinds))


def _summary(kinds: Counter[str], free_frac: float, seconds: float) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return (
        f"{sum(kinds.values())} modules: {counts}; {free_frac:.0%} of the parameters free; {seconds:.0f} s of CPU time"
    )


if __name__ == "__main__":
    sys.exit(main())
