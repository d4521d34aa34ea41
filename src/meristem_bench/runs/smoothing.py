"""What smooths a run: labels that are not quite sure, inputs that are mixed, weights that are averaged over steps."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from meristem.errors import MeristemError
from meristem_bench.runs.settings import Amount, Fraction, check_settings
from meristem_bench.runs.task import Task


@dataclass(frozen=True)
class Smoothing:
    """Nothing of it by default."""

    label_smoothing: Fraction = 0.0  # the share of a label that goes to all classes alike; 0: as the task says
    mixup: Amount = 0.0  # the alpha of the beta distribution that pairs of samples are mixed by; 0: they are not
    ema: Fraction = 0.0  # the decay of averaged weights, which are what is evaluated and kept in the end; 0: none

    def __post_init__(self) -> None:
        check_settings(self)


def smoothed(task: Task, smoothing: Smoothing) -> Task:
    """The task as it is trained; it is evaluated without smoothed labels."""
    if not smoothing.label_smoothing:
        return task
    if not hasattr(task, "label_smoothing"):
        raise MeristemError(f"the task {type(task).__name__} has no label smoothing: leave out label_smoothing")
    trained: Task = dataclasses.replace(task, label_smoothing=smoothing.label_smoothing)  # type: ignore[type-var]
    return trained
