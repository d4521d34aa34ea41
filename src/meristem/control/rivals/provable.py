"""Provable filter pruning (PFP, Liebenwein et al., ICLR 2020): as many units as sampling by sensitivity would need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from meristem.control.controller import Decision, Traits, View, widths_of
from meristem.control.first_network import FullNetwork
from meristem.control.fit_budget import fit
from meristem.control.method import Method, TrainingStage
from meristem.control.proportions import EVEN
from meristem.control.schedule import Schedule
from meristem.control.scores import ConstantScores
from meristem.control.text_settings import number, whole_number
from meristem.cost.ledger import FINE_TUNE, PRE_TRAIN, PRUNE
from meristem.errors import MeristemError
from meristem.gating.interfaces import ReaderPatches
from meristem.space.arrays import FloatArray

_CONSTANT = 3.0  # the authors' C
_FAILURE = 1e-16  # their delta
_CHUNK = 2**24  # contributions that are held at a time


def provable() -> Method:
    """The comparison for pruning with guarantees: one error bound for all layers says how many units each keeps (PFP).

    The full network is trained for the first 40 % of the run, then pruned and trained on in cycles until 75 %.
    """
    controller = Sensitivities()
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
class Sensitivities(Traits):
    """From ``begin`` to the freeze, in ``cycles`` of equal ratio, each group keeps its most sensitive units.

    How many is what the authors' sampling needs for the same relative error of all layers (Eq. Provable); the error is
    the one at which the budget of the cycle is met. They retrain for as long as they trained after each of 20 cycles;
    here all cycles together have the run that there is.
    """

    begin: float = number(0.4)
    cycles: int = whole_number(3)
    places: int = whole_number(64)

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= 1 or self.cycles < 1 or self.places < 1:
            raise MeristemError(
                f"begin must be a share, cycles and places at least 1; got {self.begin}, {self.cycles}, {self.places}"
            )

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        done, before = (self._cycle(view, float(each["progress"])) for each in _last_two(view))
        if done == before and not view.last:
            return Decision(view.live)
        cycle = self.cycles if view.last else done
        caps = {name: cap ** (cycle / self.cycles) for name, cap in view.caps.items()}
        space = view.prices.space
        names = [name for name in space.groups if name not in space.blocks]
        patches = view.reader_patches(self.places, rng)
        found = {name: unit_sensitivities(patches[name]) for name in names}
        widths = widths_for_error(view, found, caps, patches)
        preference = {name: np.zeros(len(mask)) for name, mask in view.live.items()}
        for name in names:
            units = np.flatnonzero(view.live[name])
            preference[name][:] = -np.inf
            preference[name][units[np.argsort(-found[name], kind="stable")]] = -np.arange(len(units)) / max(
                1, widths[name]
            )
        return Decision(fit(view.prices, preference, caps))

    def _cycle(self, view: View, progress: float) -> int:
        """How many cycles are over at this progress: the first at ``begin``, the last at the freeze."""
        if progress < self.begin:
            return 0
        share = (progress - self.begin) / (view.freeze - self.begin) if view.freeze > self.begin else 1.0
        return min(self.cycles, 1 + int((self.cycles - 1) * min(1.0, share) + 1e-9))


def _last_two(view: View) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """The record of the last epoch and of the one before."""
    return view.records[-1], view.records[-2] if len(view.records) > 1 else {"progress": 0.0}


def unit_sensitivities(readers: Sequence[ReaderPatches]) -> FloatArray:
    """The largest share that each live unit has in any output, over places, outputs, readers and signs."""
    largest: FloatArray = np.max([_of_reader(each) for each in readers], axis=0)
    return largest


def _of_reader(reader: ReaderPatches) -> FloatArray:
    """Shares in the positive and in the negative parts of the sums, each for positive and negative inputs."""
    largest = torch.zeros(reader.width)
    outputs = max(1, _CHUNK // max(1, reader.patches.numel()))
    for weight_sign in (1, -1):
        for input_sign in (1, -1):
            patches = (input_sign * reader.patches).clamp(min=0)
            weight = (weight_sign * reader.weight).clamp(min=0)
            for first in range(0, len(weight), outputs):
                by_unit = reader.by_unit(torch.einsum("ock,mck->moc", weight[first : first + outputs], patches))
                total = by_unit.sum(2, keepdim=True)
                shares = torch.where(total > 1e-12, by_unit / total.clamp(min=1e-12), 0.0)
                largest = torch.maximum(largest, shares.amax((0, 1)).cpu())
    return largest.double().numpy()


def samples_needed(sensitivity: float, error: float, log_term: float) -> int:
    """m of the authors for one layer: the draws that keep its relative error below ``error`` (Eq. Provable).

    >>> samples_needed(2.0, 0.5, 10.0) == math.ceil(3 * (6 + 2 * 0.5) * (2 * 3 * 10.0 * 2.0) / 0.5**2)
    True
    """
    return math.ceil(3 * (6 + 2 * error) * (2 * _CONSTANT * log_term * sensitivity) / error**2)


def expected_distinct(sensitivities: FloatArray, draws: int) -> float:
    """How many different units so many draws are expected to hit, with chances in proportion to sensitivities.

    >>> round(expected_distinct(np.array([1.0, 1.0]), 2), 3)
    1.5
    """
    total = float(sensitivities.sum())
    if total <= 0:
        return 0.0
    return float((1 - (1 - sensitivities / total) ** draws).sum())


def widths_for_error(
    view: View,
    sensitivities: Mapping[str, FloatArray],
    caps: Mapping[str, float],
    patches: Mapping[str, Sequence[ReaderPatches]],
) -> dict[str, int]:
    """The widths for the smallest error, one for all groups, with which the network costs no more than the caps."""
    groups = view.prices.space.groups
    log_terms = {
        name: math.log(8 * (_outputs(patches[name]) + 1) * _kernel(patches[name]) / _FAILURE) for name in sensitivities
    }

    def widths(error: float) -> dict[str, int]:
        found = widths_of(view.live)
        for name, values in sensitivities.items():
            draws = samples_needed(float(values.sum()), error, log_terms[name])
            distinct = math.ceil(expected_distinct(values, draws) - 1e-9)
            found[name] = max(groups[name].min_units, min(len(values), distinct))
        return found

    low, high = -20.0, 40.0  # of the logarithm of the error
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if view.prices.fits(widths(math.exp(middle)), caps) else (middle, high)
    return widths(math.exp(high))


def _outputs(readers: Sequence[ReaderPatches]) -> int:
    return max(len(each.weight) for each in readers)


def _kernel(readers: Sequence[ReaderPatches]) -> int:
    return max(_places(each.weight) for each in readers)


def _places(weight: Tensor) -> int:
    return int(weight.shape[2])
