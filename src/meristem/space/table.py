"""The space as text: what may change, which modules are coupled, what is pinned and why, what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class GroupRow(NamedTuple):
    """What the table says about one group; the last three are names of modules."""

    name: str
    kind: str
    mixes_units: bool
    units: int
    params_frac: float
    makers: Sequence[str]
    along: Sequence[str]
    readers: Sequence[str]


class PinnedRow(NamedTuple):
    """What the table says about something that is pinned."""

    name: str
    units: int
    reason: str


def space_table(
    groups: Sequence[GroupRow], pinned: Iterable[PinnedRow], footer: Iterable[str] = (), most: int = 60
) -> str:
    """Return a readable table of at most ``most`` groups, with what is pinned and the lines of ``footer`` below it."""
    rows = [("group", "kind", "units", "params", "made by", "passes", "read by")]
    for group in groups[:most]:
        kind, share = group.kind + (" *" if group.mixes_units else ""), f"{group.params_frac:.1%}"
        modules = (_names(group.makers), _names(group.along), _names(group.readers))
        rows.append((group.name, kind, str(group.units), share, *modules))
    lines = [*_aligned(rows)]
    if len(groups) > most:
        lines.append(f"... and {len(groups) - most} more groups")
    if any(group.mixes_units for group in groups):
        lines.append("* a norm, mean or softmax runs across these units, or is scaled by how many there are")
    places_by_reason: dict[str, list[str]] = {}
    for row in pinned:
        places_by_reason.setdefault(row.reason, []).append(f"{row.name} ({row.units})")
    if places_by_reason:
        lines += ["", "pinned"]
        lines += [f"  {_names(places, 4)}: {reason}" for reason, places in places_by_reason.items()]
    return "\n".join([*lines, *footer])


def _names(names: Sequence[str], most: int = 2) -> str:
    shown = ", ".join(names[:most])
    return shown + (f" +{len(names) - most}" if len(names) > most else "") if names else "-"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {2, 3}
    lines = [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * max(len(line) for line in lines), *lines[1:]]
