"""The space as text: what may change, which modules are coupled, what is pinned and why, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meristem.space.space import Space


def space_table(space: Space, most: int = 60) -> str:
    """A readable table of at most ``most`` groups."""
    rows = [("group", "kind", "units", "params", "made by", "passes", "read by")]
    shares = space.group_params_frac
    for group in list(space.groups.values())[:most]:
        makers, along, readers = space.coupled(group.name)
        kind = group.kind + (" *" if group.mixes_units else "")
        share = f"{shares[group.name]:.1%}"
        rows.append((group.name, kind, str(group.units), share, _names(makers), _names(along), _names(readers)))
    lines = [*_aligned(rows)]
    if len(space.groups) > most:
        lines.append(f"... and {len(space.groups) - most} more groups")
    if any(group.mixes_units for group in space.groups.values()):
        lines.append("* a norm, mean or softmax runs across these units")
    if space.pinned:
        lines += ["", "pinned"]
        reasons: dict[str, list[str]] = {}
        for pinned in space.pinned:
            reasons.setdefault(pinned.reason, []).append(f"{pinned.name} ({pinned.units})")
        lines += [f"  {_names(places, 4)}: {reason}" for reason, places in reasons.items()]
    lines += [f"note: {note}" for note in space.notes]
    if space.costs is not None:
        small, full = space.costs
        lines += [
            "",
            f"parameters  {small.params:,} to {full.params:,}; {space.free_params_frac:.1%} of them lie in free groups",
            f"macs        {small.macs:,} to {full.macs:,} for the example inputs",
        ]
    return "\n".join(lines)


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
