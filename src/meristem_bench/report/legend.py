"""What tells groups apart on a page: numbers, colours that differ between neighbours, and short lists of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

COLOURS = 8  # the variables --c0 to --c7 of a page's style

_CROWDED = 8  # of a bar with more segments than that only those that touch need different colours


@dataclass(frozen=True)
class Segment:
    """A stretch of a bar: the groups that own it together (none: it never changes) and how many positions it has."""

    groups: tuple[str, ...]
    positions: float


@dataclass(frozen=True)
class Legend:
    """Number, colour and units of every group. Blocks that may be absent have a number but no colour."""

    numbers: Mapping[str, int]
    colours: Mapping[str, int]
    units: Mapping[str, int]

    def segments(self, form: Mapping[str, Any]) -> list[Segment]:
        """The parts of a dimension in the order of their groups' numbers; what belongs to no group comes last."""
        found: dict[tuple[str, ...], float] = {}
        for coefficient, groups in form["terms"]:
            positions = coefficient
            for group in groups:
                positions *= self.units[group]
            owners = tuple(group for group in dict.fromkeys(groups) if group in self.colours)
            found[owners] = found.get(owners, 0.0) + positions
        order = sorted(found, key=lambda owners: (not owners, [self.numbers[group] for group in owners]))
        return [Segment(owners, found[owners]) for owners in order if found[owners]]


def legend(content: Mapping[str, Any]) -> Legend:
    """Numbers in the order of the groups; colours so that groups that meet in the drawing differ where they can."""
    groups = content["groups"]
    numbers = {group["name"]: number for number, group in enumerate(groups, 1)}
    units = {group["name"]: group["units"] for group in groups}
    coloured = [group["name"] for group in groups if group["kind"] != "depth"]
    plain = Legend(numbers, dict.fromkeys(coloured, 0), units)
    near = _neighbours(content["layers"], plain)
    colours: dict[str, int] = {}
    used = [0] * COLOURS
    for name in coloured:
        clashes = [0] * COLOURS
        for other, weight in near.get(name, {}).items():
            if other in colours:
                clashes[colours[other]] += weight
        best = min(range(COLOURS), key=lambda colour: (clashes[colour], used[colour], colour))
        colours[name] = best
        used[best] += 1
    return Legend(numbers, colours, units)


def _neighbours(layers: Sequence[Mapping[str, Any]], plain: Legend) -> dict[str, dict[str, int]]:
    """Who is seen beside whom, and how badly they must differ: most in one bar, less in one row, least in the next."""
    near: dict[str, dict[str, int]] = {}

    def meet(one: str, other: str, weight: int) -> None:
        if one != other:
            for a, b in ((one, other), (other, one)):
                beside = near.setdefault(a, {})
                beside[b] = beside.get(b, 0) + weight

    before: list[str] = []
    for layer in layers:
        bars = [[name for part in plain.segments(layer[side]) for name in part.groups] for side in ("in", "out")]
        for bar in bars:
            for one, other in pairwise(bar) if len(bar) > _CROWDED else product(bar, bar):
                meet(one, other, 100)
        read, made = (bar[:_CROWDED] for bar in bars)
        for one, other in product(read, made):
            meet(one, other, 10)
        for one, other in product(before, [*read, *made]):
            meet(one, other, 1)
        before = [*read, *made]
    return near


def brief(names: Iterable[str]) -> list[str]:
    """Names that differ in a number only, as one.

    >>> brief(["stem", "stages.0.0.conv1", "stages.0.0.conv2", "stages.0.1.conv1", "stages.0.1.conv2", "head"])
    ['stem', 'stages.0.[0-1].conv[1-2]', 'head']
    """
    # Text and numbers in turn; a number becomes a set of numbers, and then several.
    found = [tuple(re.split(r"(\d+)", name)) for name in names]
    for place in range(max(map(len, found), default=0) // 2 * 2 - 1, 0, -2):
        merged: dict[tuple[str, ...], list[str]] = {}
        for parts in found:
            alone = (*parts[:place], "", *parts[place + 1 :]) if place < len(parts) else parts
            merged.setdefault(alone, []).append(parts[place] if place < len(parts) else "")
        found = [
            (*alone[:place], ranges(values), *alone[place + 1 :]) if place < len(alone) else alone
            for alone, values in merged.items()
        ]
    return ["".join(parts) for parts in found]


def ranges(values: Sequence[str]) -> str:
    """
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
