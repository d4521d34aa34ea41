"""NetAdapt (Yang et al., ECCV 2018): step by step one layer is narrowed, the one whose network does best in a trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from meristem.control.controller import Decision, Traits, View
from meristem.control.first_network import FullNetwork
from meristem.control.fit_budget import fit
from meristem.control.method import Method, TrainingStage
from meristem.control.proportions import EVEN
from meristem.control.schedule import Schedule
from meristem.control.scores import WeightNorms
from meristem.control.text_settings import number, whole_number
from meristem.cost.ledger import FINE_TUNE, PRE_TRAIN, PRUNE
from meristem.errors import MeristemError
from meristem.gating.interfaces import Trial, WeightsOf
from meristem.space.arrays import BoolArray, FloatArray

_PARTS = 8  # of a layer, one of which is the most that may go at once


def netadapt() -> Method:
    """The comparison for adapting by trial: at each step, of all layers, the one is narrowed that minds it least.

    The full network is trained for half of the run, one step is taken at the end of every epoch of the next quarter,
    and what is left is fine-tuned.
    """
    controller = StepByStep()
    return Method(
        scores=WeightNorms(p=2.0, of=WeightsOf.FILTER),
        controller=controller,
        schedule=Schedule(start=math.inf, grow_until=0.0, peak=math.inf, hold_until=1.0, land_at=1.0),
        proportions=EVEN,
        start=FullNetwork(),
        tries_out=True,
        stages=(
            TrainingStage(PRE_TRAIN, until=controller.begin),
            TrainingStage(PRUNE, until=None),
            TrainingStage(FINE_TUNE, until=1.0),
        ),
    )


@dataclass(frozen=True)
class StepByStep(Traits):
    """At every step each layer alone is narrowed until the network meets the step's resource, and trained for a moment.

    The network of lowest held-out loss is the next one, with the weights it has then. Units of largest norm stay, in
    multiples of ``align``, or of an eighth of the layer where that is less. The resource of the steps falls by amounts
    that shrink by ``decay``, as the authors' do; theirs begin with a fortieth of the whole and stop where they come to,
    these sum up to the budget at the freeze (Eq. NetAdapt). The authors train each proposal for 500 steps on CIFAR, in
    all three times as long as they trained the full network; ``steps`` is 20 here, and the ledger shows what it is.
    """

    begin: float = number(0.5)
    decay: float = number(0.96)
    steps: int = whole_number(20)
    align: int = whole_number(8)

    def __post_init__(self) -> None:
        if not (0 <= self.begin <= 1 and 0 < self.decay <= 1 and self.steps >= 1 and self.align >= 1):
            raise MeristemError(
                f"begin must be a share, decay above 0 and at most 1, steps and align at least 1; got {self.begin}, "
                f"{self.decay}, {self.steps}, {self.align}"
            )

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        step, count = self._step(view)
        seed = int(rng.integers(2**31))  # of all proposals of this step: they see the same batches
        if not 1 <= step <= count:
            return Decision(_filled(view) if view.last else view.live)
        best: tuple[Trial, Mapping[str, BoolArray]] | None = None
        for live in self.proposals(view, step_resource(view.caps, step, count, self.decay), step == count):
            trial = view.try_out(live, self.steps, seed)
            if best is None or trial.loss < best[0].loss:
                best = trial, live
        if best is None:  # the network meets the resource of this step already
            return Decision(view.live)
        return Decision(best[1], weights=best[0].weights)

    def _step(self, view: View) -> tuple[int, int]:
        """Which step is due after the last epoch, and how many there are: one an epoch, until one before the freeze."""
        last = view.records[-1]
        epochs = round(last["epoch"] / last["progress"])
        final = round(view.freeze * epochs)
        first = min(math.ceil(self.begin * epochs - 1e-9), final)
        return int(last["epoch"]) - first + 1, max(1, final - first)

    def proposals(self, view: View, limits: Mapping[str, float], final: bool) -> Iterator[Mapping[str, BoolArray]]:
        """For each layer the network in which it alone is narrowed to meet the limits; all meet them.

        A layer that cannot makes no proposal. If none can, all layers are narrowed alike. In the final step a layer may
        have any width.
        """
        if view.prices.fits(view.widths, limits):
            return
        layers = [name for name in view.live if name not in view.prices.space.blocks]
        found = {name: width for name in layers if (width := self._width(view, name, limits, final)) is not None}
        for name, width in found.items():
            mask = np.zeros_like(view.live[name])
            mask[np.argsort(np.where(view.live[name], -view.scores[name], np.inf), kind="stable")[:width]] = True
            yield {**view.live, name: mask}
        if not found:
            yield fit(view.prices, _alike(view), limits)

    def _width(self, view: View, name: str, limits: Mapping[str, float], final: bool) -> int | None:
        """The largest width of a layer that meets the limits; a multiple, unless that falls below the budget itself."""
        group, widths = view.prices.space.groups[name], view.widths
        multiple = 1 if final else max(1, min(self.align, group.units // _PARTS))

        def largest(multiple: int) -> int | None:
            candidates = range((widths[name] - 1) // multiple * multiple, group.min_units - 1, -multiple)
            return next((each for each in candidates if view.prices.fits({**widths, name: each}, limits)), None)

        width = largest(multiple)
        too_small = width is not None and view.prices.fits({**widths, name: width}, view.caps)
        return largest(1) if too_small or width is None else width


def _filled(view: View) -> dict[str, BoolArray]:
    """The live units, and as many others as rounding has left of the budget: these return with what they had."""
    preference = {name: np.where(mask, 1.0, view.lived[name] * 0.5) for name, mask in view.live.items()}
    return fit(view.prices, preference, view.caps)


def _alike(view: View) -> dict[str, FloatArray]:
    """The preference that narrows all layers in proportion, by the norms of their units."""
    preference = {}
    for name, mask in view.live.items():
        order = np.argsort(np.where(mask, -view.scores[name], np.inf), kind="stable")
        preference[name] = np.full(len(mask), -np.inf)
        count = int(mask.sum())
        preference[name][order[:count]] = -np.arange(count) / max(1, count)
    return preference


def step_resource(caps: Mapping[str, float], step: int, count: int, decay: float) -> dict[str, float]:
    """What a network may cost after so many of ``count`` steps, as shares of the full one (Eq. NetAdapt).

    >>> [round(step_resource({"macs": 0.4}, step, 3, 0.5)["macs"], 3) for step in range(4)]
    [1.0, 0.657, 0.486, 0.4]
    """
    fallen = sum(decay**each for each in range(step)) / sum(decay**each for each in range(count))
    return {name: 1 - (1 - cap) * fallen for name, cap in caps.items()}
