"""What a proof tries, and how it finds out who is to blame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from meristem.space.arrays import BoolArray
from meristem.tracing.grouping import Grouping

_TINY = 4  # groups of fewer units have no two widths that are far apart


def trial_masks(grouping: Grouping) -> list[dict[str, BoolArray]]:
    """Live units to try: one less in every group, random widths, equal widths, and as few units as may be.

    Code that cuts a dimension by position must not find the right units by accident. So one less is such that half of a
    group is not half of what is left of it; of the random widths every other one is small and every other one large,
    because several groups may lie in one dimension; more than half of the units that go are the first ones; and groups
    of as many units get different ones, as far as there are, because code may use the size of one for another.
    """
    random, tried = np.random.default_rng(0), Counter[tuple[int, int]]()
    one_less, random_widths, fewest, equal_widths, odd_ones_least = (grouping.full_masks() for _ in range(5))
    for number, group in enumerate(grouping.groups):
        name, units = group.name, group.units
        one_less[name][units // 2 - units % 2] = False
        least = max(group.min_units, min(2, units - 1))
        third = (units - least) // 3
        low, high = (least, least + third) if number % 2 == 0 else (units - third, units)
        width = _seldom_tried(range(low, high + 1), units, tried, random)
        gone = units - width
        first = (gone + 1) // 2
        random_widths[name][:first] = False
        random_widths[name][first + random.permutation(units - first)[: gone - first]] = False
        if units < _TINY and number % 2:
            odd_ones_least[name][: -group.min_units] = False
        fewest[name][: -group.min_units] = False
    # Code that compares the sizes of two groups may go another way only where they are equal.
    smallest = min((group.units for group in grouping.groups if group.units > 1), default=1)
    for group in grouping.groups:
        if group.min_units <= smallest:
            equal_widths[group.name][smallest:] = False
    # They come before the one in which all sizes are the same, so that they tell who is to blame.
    also = [equal_widths, *([odd_ones_least] if grouping.observations.cuts else [])]
    also = [masks for masks in also if not all(mask.all() for mask in masks.values())]
    return [one_less, random_widths, *also, fewest]


def _seldom_tried(widths: range, units: int, tried: Counter[tuple[int, int]], random: np.random.Generator) -> int:
    """One of the widths that groups of as many units got least often so far."""
    fewest = min(tried[units, width] for width in widths)
    width = int(random.choice([width for width in widths if tried[units, width] == fewest]))
    tried[units, width] += 1
    return width


def guilty(suspects: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> set[str]:
    """Those of the suspects that fail on their own, found by halving; all of them if they only fail together.

    >>> sorted(guilty("abcdef", lambda names: "b" in names or "e" in names))
    ['b', 'e']
    >>> sorted(guilty("abcd", lambda names: "a" in names and "c" in names))
    ['a', 'b', 'c', 'd']
    """
    if not suspects or not fails(suspects):
        return set()
    if len(suspects) == 1:
        return set(suspects)
    half = len(suspects) // 2
    return guilty(suspects[:half], fails) | guilty(suspects[half:], fails) or set(suspects)
