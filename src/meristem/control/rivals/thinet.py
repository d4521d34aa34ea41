"""ThiNet (Luo et al., ICCV 2017): layer by layer, the units go whose absence the next layers notice least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.first_network import FullNetwork
from meristem.control.fit_budget import fit, in_proportion
from meristem.control.method import Method, TrainingStage
from meristem.control.proportions import EVEN
from meristem.control.schedule import Schedule
from meristem.control.scores import ConstantScores
from meristem.control.text_settings import flag, number, whole_number
from meristem.cost.ledger import FINE_TUNE, PRE_TRAIN, PRUNE
from meristem.errors import MeristemError
from meristem.gating.interfaces import ReaderPatches
from meristem.space.arrays import BoolArray, FloatArray, IntArray


def thinet() -> Method:
    """The comparison for pruning layer by layer: what the next layer notices least goes (ThiNet).

    The full network is trained for half of the run, its layers are pruned in the next quarter, a few at the end of
    every epoch, and what is left is fine-tuned.
    """
    controller = LayerByLayer()
    return Method(
        scores=ConstantScores(),
        controller=controller,
        schedule=Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=1.0, land_at=1.0),
        proportions=EVEN,
        start=FullNetwork(),
        freeze=0.75,
        looks_at_inputs=True,
        stages=(
            TrainingStage(PRE_TRAIN, until=controller.begin),
            TrainingStage(PRUNE, until=None),
            TrainingStage(FINE_TUNE, until=1.0),
        ),
    )


@dataclass(frozen=True)
class LayerByLayer(Traits):
    """From the progress ``begin`` until the freeze one group after the other, in the order of the model, is pruned.

    Each keeps the same share of its units, the one that the budget allows. ``places`` inputs of each layer that reads
    the group are looked at in every batch of the held-out data. With ``reweight`` the units that stay are scaled where
    they are read so that the next layers' outputs change least (least squares), as the authors do.
    """

    begin: float = number(0.5)
    places: int = whole_number(100)
    reweight: bool = flag(True)

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= 1 or self.places < 1:
            raise MeristemError(f"begin must be a share and places at least 1, got {self.begin} and {self.places}")

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        space, live = view.prices.space, dict(view.live)
        order = [name for name in space.groups if name not in space.blocks]
        due = order if view.last else order[: self._due(view, len(order))]
        target = widths_of(fit(view.prices, in_proportion(space, {}), view.caps))
        now = [name for name in due if int(live[name].sum()) > target[name]]
        if not now:
            return Decision(live)
        scales: dict[str, FloatArray] = {}
        patches = view.reader_patches(self.places, rng)
        for name in now:
            contributions = _contributions(patches[name], rng)
            kept = kept_units(contributions, target[name])
            units = np.flatnonzero(live[name])
            live[name] = _mask(len(live[name]), units[kept])
            if self.reweight:
                scales[name] = np.ones(len(live[name]))
                scales[name][units[kept]] = reweighted(contributions, kept)
        if view.last:  # what rounding leaves of the budget goes to units that are live now
            live = _within(view, live)
        return Decision(live, read_scales=scales)

    def _due(self, view: View, groups: int) -> int:
        """How many groups are pruned by now."""
        progress = float(view.records[-1]["progress"])
        until = view.freeze
        share = (progress - self.begin) / (until - self.begin) if until > self.begin else 1.0
        return math.ceil(groups * min(1.0, max(0.0, share)))


def kept_units(contributions: FloatArray, width: int) -> IntArray:
    """The units that stay: those that go are added one by one, each the one with which the sum of what they contribute
    has the smallest square, over all rows.

    >>> kept_units(np.array([[1.0, -1.0, 3.0], [2.0, -2.0, 0.1]]), 1).tolist()  # the first two cancel each other
    [2]
    """
    products = contributions.T @ contributions
    gone = np.zeros(len(products), dtype=np.bool_)
    with_gone = np.zeros(len(products))  # of each unit with the sum of those that are gone
    for _ in range(len(products) - width):
        rise = np.where(gone, np.inf, np.diag(products) + 2 * with_gone)
        chosen = int(np.argmin(rise))
        gone[chosen] = True
        with_gone += products[:, chosen]
    return np.flatnonzero(~gone)


def reweighted(contributions: FloatArray, kept: IntArray) -> FloatArray:
    """The factors of the units that stay with which they come nearest to what all units contributed together."""
    total = contributions.sum(1)
    left = contributions[:, kept]
    slight = 1e-6 * np.trace(left.T @ left) / max(1, len(kept)) * np.eye(len(kept))
    factors: FloatArray = np.linalg.solve(left.T @ left + slight, left.T @ total + slight @ np.ones(len(kept)))
    return factors


def _contributions(readers: Sequence[ReaderPatches], rng: np.random.Generator) -> FloatArray:
    """What each live unit adds to one random output at every place, one row for a place of a reader."""
    rows = []
    for each in readers:
        chosen = torch.from_numpy(rng.integers(len(each.weight), size=len(each.patches))).to(each.weight.device)
        by_input = (each.weight[chosen] * each.patches).sum(2)
        by_unit = each.by_unit(by_input).double().cpu().numpy()
        rows.append(by_unit / max(float(np.abs(by_unit.sum(1)).mean()), 1e-12))  # readers count alike
    return np.concatenate(rows)


def _mask(size: int, units: IntArray) -> BoolArray:
    mask = np.zeros(size, dtype=np.bool_)
    mask[units] = True
    return mask


def _within(view: View, live: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    return fit(view.prices, {name: np.where(mask, 0.0, -np.inf) for name, mask in live.items()}, view.caps)
