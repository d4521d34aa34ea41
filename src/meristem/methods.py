"""All methods by name: how a network grows, is pruned, or stays. A new one is one file and one line here.

Grower(..., method="paper")                      # a name
Grower(..., method="paper:temperature=global")   # with a number or a choice of it changed
Grower(..., method=methods.paper())              # the same as an object, to be changed with dataclasses.replace
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from meristem.control.controller import FixedStructure
from meristem.control.draws import Even
from meristem.control.exact import Exact
from meristem.control.feedback import Feedback
from meristem.control.first_network import FullNetwork, GivenWidths, PlannedShare, SmallestNetwork
from meristem.control.first_scores import Normal, Staircase
from meristem.control.fixed_probability import FixedProbability
from meristem.control.importance import Importance
from meristem.control.method import Method
from meristem.control.method_text import changed_by_text, method_settings
from meristem.control.order import ImportancePerPrice
from meristem.control.penalty import PlainSum
from meristem.control.proportions import EVEN, Proportions
from meristem.control.rivals.autogrow import autogrow
from meristem.control.rivals.bar import bar
from meristem.control.rivals.iss import iss
from meristem.control.rivals.l1_pruning import l1_pruning
from meristem.control.rivals.morphnet import morphnet
from meristem.control.rivals.netadapt import netadapt
from meristem.control.rivals.provable import provable
from meristem.control.rivals.soft_pruning import soft_pruning
from meristem.control.rivals.thinet import thinet
from meristem.control.schedule import Schedule
from meristem.control.scores import ConstantScores, RandomScores
from meristem.control.trained_gates import TrainedGates
from meristem.control.width_test import NoiseTest
from meristem.errors import MeristemError, nearest
from meristem.gating.kinds import Sigmoid
from meristem.surgery.fresh import AsBuilt

__all__ = [
    "METHODS",
    "autogrow",
    "balanced",
    "bar",
    "default",
    "dense",
    "direct",
    "gates",
    "iss",
    "l1_pruning",
    "method_settings",
    "morphnet",
    "netadapt",
    "noise_test",
    "paper",
    "paper_nas",
    "paper_random",
    "paper_steady",
    "parse_method",
    "provable",
    "random",
    "search",
    "soft_pruning",
    "thinet",
    "uniform",
]


def default() -> Method:
    """The planned cost is met exactly at every epoch; every layer gets a share of it, importance chooses its units."""
    return Method()


def search() -> Method:
    """The default with groups that compete: more importance for the price of a unit makes a group wider.

    The importance of a group's units together says what the group is worth, so it is taken as it is
    (``grace_epochs=0``).
    """
    return Method(scores=Importance(grace_epochs=0), controller=Exact(ImportancePerPrice()))


def noise_test() -> Method:
    """The default whose groups become wider where the held-out loss minds noise most (Network Adjustment)."""
    return Method(width_test=NoiseTest())


def random() -> Method:
    """A schedule that rises above the budget, with random instead of learned importance where it comes down.

    It shows what importance is worth beside ``default:peak=1.2``; the default itself prunes nothing.
    """
    return Method(scores=RandomScores(), schedule=Schedule(peak=1.2))


def gates() -> Method:
    """Exact budgets with gates learned by gradient: forward value 1, sigma's slope, low-variance draws."""
    return Method(scores=TrainedGates(), controller=Exact(draw=Even()), proportions=EVEN)


def paper() -> Method:
    """The letter of the paper: sigmoid gates, a sum penalty by feedback, independent draws, one unit per group.

    What the paper leaves unsaid is as its own numbers imply (docs/equations.md): scores of absent units are normal
    around logit(1 / n). It is meant for runs of the paper's length; in others use `paper-steady`.
    """
    return Method(
        scores=TrainedGates(penalty=PlainSum(), first=Normal(), per_run=False, every_score=True),
        controller=Feedback(),
        proportions=EVEN,
        start=SmallestNetwork(),
        gate=Sigmoid(),
        fresh=AsBuilt(),
        freeze=1.0,
        opening=0.0,
        counts_draws=True,
    )


def paper_steady() -> Method:
    """The paper's method made to reach any budget in a run of any length: units wake up one after the other.

    The penalty follows the printed difference over its own start, the gate rate the length of the run, and the last
    draw is trimmed and filled to the budget.
    """
    scores = TrainedGates(penalty=PlainSum(), first=Staircase(), small_steps=True, every_score=True)
    return replace(paper(), scores=scores, controller=Feedback(deep_base=0.5, steady=True))


def paper_nas() -> Method:
    """The letter of the paper in its comparison with architecture search: bases 2.0 for units, 0.1 for blocks."""
    base, deep_base = 2.0, 0.1
    letter = paper()
    scores = replace(letter.scores, block_weight=deep_base / base)  # type: ignore[type-var]
    return replace(letter, scores=scores, controller=Feedback(deep_base=base))


def paper_random() -> Method:
    """The paper's random baseline: after every epoch all units are drawn anew, with one fixed probability.

    Nothing is learned about units, so there are no gates. The expected cost of a draw is the budget.
    """
    return Method(
        scores=ConstantScores(),
        controller=FixedProbability(),
        schedule=Schedule(start=1.0, grow_until=0.0, peak=1.0),
        proportions=EVEN,
        fresh=AsBuilt(),
        freeze=1.0,
        opening=0.0,
    )


def uniform() -> Method:
    """Nothing grows: every group has the same share of its units from the start, trained from scratch."""
    return Method(
        scores=ConstantScores(),
        controller=FixedStructure(),
        schedule=Schedule(start=1.0, grow_until=0.0, peak=1.0),
        proportions=EVEN,
        start=PlannedShare(native_scale=True),
        freeze=0.0,
    )


def balanced() -> Method:
    """Nothing grows: the widths in which the default ends, trained from scratch."""
    return replace(uniform(), proportions=Proportions())


def dense() -> Method:
    """Nothing grows: the full model is trained as it is."""
    return replace(uniform(), start=FullNetwork(), ignores_budget=True)


def direct(widths: Mapping[str, int] | None = None) -> Method:
    """Nothing grows: the widths of a finished run, trained from scratch (direct design)."""
    return replace(uniform(), start=GivenWidths(None if widths is None else tuple(widths.items())))


METHODS: Mapping[str, Callable[[], Method]] = {
    "default": default,
    "search": search,
    "noise-test": noise_test,
    "random": random,
    "gates": gates,
    "paper": paper,
    "paper-steady": paper_steady,
    "paper-nas": paper_nas,
    "paper-random": paper_random,
    "uniform": uniform,
    "balanced": balanced,
    "dense": dense,
    "direct": direct,
    "autogrow": autogrow,
    "iss": iss,
    "l1": l1_pruning,
    "soft-pruning": soft_pruning,
    "morphnet": morphnet,
    "thinet": thinet,
    "provable": provable,
    "bar": bar,
    "netadapt": netadapt,
}


def parse_method(text: str, what: str = "method", more_names: tuple[str, ...] = ()) -> Method:
    """The method that a text stands for; messages call it ``what`` and offer ``more_names`` beside those known here.

    >>> parse_method("default:peak=2.5:freeze=0.8").schedule.peak
    2.5
    """
    name, *changes = text.split(":")
    if name not in METHODS:
        raise MeristemError(f"there is no {what} {name!r}; {nearest(name, [*more_names, *METHODS])}")
    return changed_by_text(METHODS[name](), name, changes)
