"""A network drawn by chance: every unit for itself, with its probability, and trimmed to the budget at the end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meristem.control.controller import View, widths_of
from meristem.control.draws import Draw
from meristem.control.fit_budget import fit
from meristem.space.arrays import BoolArray, FloatArray


def draw_network(
    view: View, probabilities: Mapping[str, FloatArray], draw: Draw, rng: np.random.Generator
) -> dict[str, BoolArray]:
    """The drawn units; a group that would have fewer than it must gets its most likely ones."""
    drawn = {name: draw(p, view.live[name], rng) for name, p in probabilities.items()}
    for name, mask in drawn.items():
        missing = view.prices.space.groups[name].min_units - int(mask.sum())
        if missing > 0:
            mask[np.argsort(np.where(mask, np.inf, -probabilities[name]), kind="stable")[:missing]] = True
    return drawn


def land(
    view: View, drawn: Mapping[str, BoolArray], preference: Mapping[str, FloatArray], *, fill: bool
) -> dict[str, BoolArray]:
    """The last draw, trimmed to the budget; with ``fill`` also filled with what still fits. ``preference``: in [0, 1].

    A cap is a cap: what is above it loses the units of least preference.
    """
    if fill:
        return fit(view.prices, {name: values + drawn[name] for name, values in preference.items()}, view.caps)
    if view.prices.fits(widths_of(drawn), view.caps):
        return dict(drawn)
    kept = {name: np.where(drawn[name], values, -np.inf) for name, values in preference.items()}
    return fit(view.prices, kept, view.caps)
