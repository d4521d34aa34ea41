"""What a proof tries, and how it finds out who is to blame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meristem.space.arrays import BoolArray
from meristem.tracing.grouping import Grouping


def trial_masks(grouping: Grouping) -> list[dict[str, BoolArray]]:
    """Live units to try: one less in every group, random widths, equal widths, and as few units as may be."""
    random = np.random.default_rng(0)
    one_less, random_widths, fewest, equal_widths = (grouping.full_masks() for _ in range(4))
    for group in grouping.groups:
        name, units = group.name, group.units
        one_less[name][units // 2] = False
        width = random.integers(max(group.min_units, min(2, units - 1)), units)
        random_widths[name][random.permutation(units)[width:]] = False
        fewest[name][: -group.min_units] = False
    # Code that compares the sizes of two groups may go another way only where they are equal.
    smallest = min((group.units for group in grouping.groups if group.units > 1), default=1)
    for group in grouping.groups:
        if group.min_units <= smallest:
            equal_widths[group.name][smallest:] = False
    # It comes before the one in which all sizes are the same, so that it tells who is to blame.
    equal = [] if all(mask.all() for mask in equal_widths.values()) else [equal_widths]
    return [one_less, random_widths, *equal, fewest]


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
