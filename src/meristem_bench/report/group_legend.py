"""The legend of a space: every group has a number and a colour that differs from its neighbours'."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

COLOURS = 8  # the variables --c0 to --c7 of a page's style

_CROWDED = 8  # of a bar with more segments than that only those that touch need different colours


@dataclass(frozen=True)
class BarSegment:
    """A stretch of a bar: the groups that own it together (none: it never changes) and how many positions it has."""

    groups: tuple[str, ...]
    positions: float


@dataclass(frozen=True)
class GroupLegend:
    """Number, colour and units of every group. Blocks that may be absent have a number but no colour."""

    numbers: Mapping[str, int]
    colours: Mapping[str, int]
    units: Mapping[str, int]

    def segments(self, form: Mapping[str, Any]) -> list[BarSegment]:
        """The parts of a dimension in the order of their groups' numbers; what belongs to no group comes last."""
        sizes: dict[tuple[str, ...], float] = {}
        for coefficient, groups in form["terms"]:
            positions = coefficient
            for group in groups:
                positions *= self.units[group]
            owners = tuple(group for group in dict.fromkeys(groups) if group in self.colours)
            sizes[owners] = sizes.get(owners, 0.0) + positions
        order = sorted(sizes, key=lambda owners: (not owners, [self.numbers[group] for group in owners]))
        return [BarSegment(owners, sizes[owners]) for owners in order if sizes[owners]]


def group_legend(content: Mapping[str, Any]) -> GroupLegend:
    """Numbers in the order of the groups; colours that differ between groups drawn close together, where they can."""
    groups = content["groups"]
    numbers = {group["name"]: number for number, group in enumerate(groups, 1)}
    units = {group["name"]: group["units"] for group in groups}
    coloured = [group["name"] for group in groups if group["kind"] != "depth"]
    colourless = GroupLegend(numbers, dict.fromkeys(coloured, 0), units)
    neighbours = _neighbours(content["layers"], colourless)
    colours: dict[str, int] = {}
    used = [0] * COLOURS
    for name in coloured:
        clashes = [0] * COLOURS
        for other, weight in neighbours.get(name, {}).items():
            if other in colours:
                clashes[colours[other]] += weight
        best = min(range(COLOURS), key=lambda colour: (clashes[colour], used[colour], colour))
        colours[name] = best
        used[best] += 1
    return GroupLegend(numbers, colours, units)


def _neighbours(layers: Sequence[Mapping[str, Any]], legend: GroupLegend) -> dict[str, dict[str, int]]:
    """The neighbours of each group in the drawing, by weight: most in one bar, less in one row, least in the next."""
    weights: dict[str, dict[str, int]] = {}

    def add(one: str, other: str, weight: int) -> None:
        if one != other:
            for a, b in ((one, other), (other, one)):
                of_a = weights.setdefault(a, {})
                of_a[b] = of_a.get(b, 0) + weight

    row_before: list[str] = []
    for layer in layers:
        bars = [[name for segment in legend.segments(layer[side]) for name in segment.groups] for side in ("in", "out")]
        for bar in bars:
            for one, other in pairwise(bar) if len(bar) > _CROWDED else product(bar, bar):
                add(one, other, 100)
        inputs, outputs = (bar[:_CROWDED] for bar in bars)
        for one, other in product(inputs, outputs):
            add(one, other, 10)
        for one, other in product(row_before, [*inputs, *outputs]):
            add(one, other, 1)
        row_before = [*inputs, *outputs]
    return weights


def brief(names: Iterable[str]) -> list[str]:
    """The names, with those that differ only in a number as one.

    >>> brief(["stem", "stages.0.0.conv1", "stages.0.0.conv2", "stages.0.1.conv1", "stages.0.1.conv2", "head"])
    ['stem', 'stages.0.[0-1].conv[1-2]', 'head']
    """
    # Text and numbers in turn; a number becomes a set of numbers, and then several.
    patterns = [tuple(re.split(r"(\d+)", name)) for name in names]
    for place in range(max(map(len, patterns), default=0) // 2 * 2 - 1, 0, -2):
        merged: dict[tuple[str, ...], list[str]] = {}
        for parts in patterns:
            without = (*parts[:place], "", *parts[place + 1 :]) if place < len(parts) else parts
            merged.setdefault(without, []).append(parts[place] if place < len(parts) else "")
        patterns = [
            (*without[:place], ranges(values), *without[place + 1 :]) if place < len(without) else without
            for without, values in merged.items()
        ]
    return ["".join(parts) for parts in patterns]


def ranges(values: Sequence[str]) -> str:
    """Numbers in short form: the number itself if there is one, else a list of ranges in brackets.

    >>> ranges(["3"]), ranges(["0", "1", "2", "7"])
    ('3', '[0-2,7]')
    """
    if len(set(values)) == 1:
        return values[0]
    runs: list[list[int]] = []
    for number in sorted(set(map(int, values))):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "[" + ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs) + "]"
