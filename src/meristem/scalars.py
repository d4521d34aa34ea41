"""The numbers of a record by the names that they have as graphs, in TensorBoard and elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from meristem.history import Record
from meristem.space.space import Space

# The tags of a record's values; those that are not listed here stand under run/.
_TAGS = {
    "params": "cost/params",
    "macs": "cost/macs",
    "params_frac": "cost/params_frac",
    "macs_frac": "cost/macs_frac",
    "spend_macs": "spend/macs",
    "dense_spend_macs": "spend/dense_macs",
    "spend_frac": "spend/frac",
    "total_spend_frac": "spend/total_frac",
    "spend_by_stage": "spend/stages/{}",
    "grown": "structure/grown",
    "restored": "structure/restored",
    "pruned": "structure/pruned",
    "frozen": "structure/frozen",
    "metrics": "metrics/{}",
    "planned": "cost/{}_planned",
    "widths": "width/{}",
    "blocks": "blocks/{}",
    "temperature": "temperature/{}",
    "temperature_with_absent": "temperature_with_absent/{}",
    "scores": "scores/{}",
}


def scalars(record: Record, space: Space) -> dict[str, float]:
    """The finite numbers of a record by their tags; widths as shares of the full ones, 0 inside an absent block."""
    widths = record["widths"]
    shares = {name: width / space.full[name] for name, width in widths.items()}
    shares.update(dict.fromkeys(space.inactive_groups(widths), 0.0))
    return {
        _TAGS.get(first, f"run/{first}" + "/{}" * bool(rest)).format("/".join(rest)): float(value)
        for (first, *rest), value in _leaves({**record, "widths": shares})
        if first != "epoch" and isinstance(value, (int, float)) and math.isfinite(value)
    }


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value with its path of names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from (((name, *names), inner) for names, inner in _leaves(value))
        else:
            yield (name,), value
