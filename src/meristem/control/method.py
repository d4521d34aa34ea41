"""A method is a composition of policies; presets are functions that return one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from meristem.control.controller import Controller, Exact, Feedback, Keep
from meristem.control.draws import Even
from meristem.control.order import ImportancePerPrice, InStep
from meristem.control.rivals.autogrow import AutoGrow
from meristem.control.rivals.iss import Lasso, Survivors
from meristem.control.schedule import Schedule
from meristem.control.scores import Chance, Descent, Importance, Learning, Nothing
from meristem.control.temperature import PerUnit, Temperature
from meristem.errors import MeristemError
from meristem.gating.kinds import Open
from meristem.surgery.fresh import AsBuilt, Fresh, RandomLastNorm, ZeroOutgoing

PAPER_STEPS = 62_400  # 160 epochs of CIFAR-10 at batch 128: the steps the paper's gate learning rate is meant for


class GatePlacement(Enum):
    """Where a gate multiplies: where its unit is read (the default) or where it is made (the paper's placement)."""

    READING = "reading"
    MAKING = "making"


@dataclass(frozen=True)
class Method:
    """How a network grows.

    ``learning`` moves the scores, ``controller`` turns them into the next network, ``schedule`` is the planned cost,
    ``fresh`` what new units start with. ``freeze`` is the progress from which on structure stays and gates harden.
    ``opening`` is how many epochs a fresh block takes to open; 0: it is open at once.
    """

    learning: Learning = Importance()
    controller: Controller = Exact(InStep())
    schedule: Schedule = Schedule()
    temperature: Temperature = PerUnit()
    fresh: Fresh = ZeroOutgoing()
    freeze: float = 0.75
    opening: float = 1.0
    side: GatePlacement = GatePlacement.READING
    widths: tuple[tuple[str, int], ...] | None = None  # of the start; None: the same share of every group
    full_width: bool = False  # the start has all units, and no block that may be absent
    native_scale: bool = False  # at the start, weights as wide as if the model had been built at that size
    # Draws units to zero, whose scores are then the norms of their weights. The text of a method without one is as it
    # was before there was any, because checkpoints hold it.
    lasso: Lasso | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.freeze <= 1:
            raise MeristemError(f"freeze must be a share of the run, got {self.freeze}")
        if not 0 <= self.opening < math.inf:
            raise MeristemError(f"opening must be a number of epochs, at least 0, got {self.opening}")


def default() -> Method:
    """The planned cost is met exactly at every epoch, groups grow in step, importance decides which units live."""
    return Method()


def search() -> Method:
    """The default with groups that compete: more importance for the price of a unit makes a group wider.

    The importance of a group's units together says what the group is worth, so it is taken as it is
    (``grace_epochs=0``).
    """
    return Method(learning=Importance(grace_epochs=0), controller=Exact(ImportancePerPrice()))


def chance() -> Method:
    """The default's growth with random instead of learned importance."""
    return Method(learning=Chance())


def gates() -> Method:
    """Exact budgets with gates learned by gradient: forward value 1, sigma's slope, low-variance draws."""
    return Method(learning=Descent(gate=Open()), controller=Exact(draw=Even()))


def paper() -> Method:
    """The letter of the paper: sigmoid gates, independent draws, feedback, one unit a group, no freeze.

    In a run of as many steps as the paper's the gate learning rate is the paper's; in a shorter one it is higher.
    """
    schedule = Schedule(start=0.0, grow_until=0.0, peak=1.0)
    return Method(Descent(), Feedback(), schedule, PerUnit(), AsBuilt(), freeze=1.0, opening=0.0)


def uniform() -> Method:
    """Nothing grows: every group has the same share of its units from the start, trained from scratch."""
    return Method(Nothing(), Keep(), Schedule(start=1.0, grow_until=0.0, peak=1.0), freeze=0.0, native_scale=True)


def direct(widths: Mapping[str, int]) -> Method:
    """Nothing grows: a network of these widths, trained from scratch (direct design)."""
    return replace(uniform(), widths=tuple(widths.items()))


def autogrow() -> Method:
    """The comparison for growing depth: blocks of full width come in one at a time while that helps (AutoGrow)."""
    schedule = Schedule(start=0.0, grow_until=0.0, peak=1.0)
    return Method(Nothing(), AutoGrow(), schedule, fresh=RandomLastNorm(), opening=0.0, full_width=True)


def paper_nas() -> Method:
    """The letter of the paper in its comparison with architecture search: bases 2.0 for units, 0.1 for blocks."""
    base, deep_base = 2.0, 0.1
    return replace(paper(), learning=Descent(block_weight=deep_base / base), controller=Feedback(deep_base=base))


def iss(lasso: Lasso | None = None, compact: bool = True) -> Method:
    """The comparison for recurrent networks: the full network at first, whose units die under a group lasso (ISS).

    After the last decision what is left is trained without the lasso.
    """
    schedule = Schedule(
        start=math.inf, grow_until=0.0, peak=math.inf, hold_until=1.0, land_at=1.0
    )  # all of it until the last decision
    return Method(Nothing(), Survivors(compact), schedule, lasso=lasso or Lasso())


def methods() -> dict[str, Callable[[], Method]]:
    """All presets by name."""
    return {"default": default, "search": search, "random": chance, "gates": gates, "paper": paper, "uniform": uniform}


def named_methods() -> dict[str, Callable[[], Method]]:
    """The presets, and those that are for growing depth or for comparison."""
    return {**methods(), "paper-nas": paper_nas, "autogrow": autogrow, "iss": iss}
