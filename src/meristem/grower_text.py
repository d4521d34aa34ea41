"""How a grower shows itself: in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from torch import nn

from meristem.growth import Growth

_SHOWN = 4  # groups that are named in one line


@dataclass(frozen=True)
class Standing:
    """What a grower tells of itself. Shares are of the full model, the training cost is of the dense run so far."""

    model: str
    budget: str
    epoch: int
    epochs: int
    shares: Mapping[str, float]
    training_cost: float
    widths: Mapping[str, tuple[int, int]]  # of every group: live, full


def standing(model: nn.Module, budget: str, growth: Growth) -> Standing:
    """How a run stands now."""
    widths, groups = growth.live.widths, growth.live.space.groups
    return Standing(
        model=type(model).__name__,
        budget=budget,
        epoch=growth.progress.epoch,
        epochs=growth.epochs + growth.fine_tune,
        shares=growth.decider.prices.shares(widths),
        training_cost=growth.ledger.spend_frac,
        widths={name: (width, groups[name].units) for name, width in widths.items()},
    )


def summary(standing: Standing) -> str:
    """One line.

    >>> print(summary(Standing("Net", "params 36%", 3, 20, {"params": 0.2, "macs": 0.25}, 0.1, {"conv": (3, 8)})))
    Grower(Net, budget params 36%, epoch 3 of 20, params 20.0%, macs 25.0%, training cost 10.0%, widths conv 3/8)
    """
    widths = [f"{name} {live}/{full}" for name, (live, full) in standing.widths.items()]
    more = f" and {len(widths) - _SHOWN} more groups" if len(widths) > _SHOWN else ""
    facts = [standing.model, *_facts(standing), f"widths {', '.join(widths[:_SHOWN])}{more}"]
    return f"Grower({', '.join(facts)})"


def html(standing: Standing) -> str:
    """A small table with a bar for the width of every group."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td><progress value='{live}' max='{full}'></progress></td>"
        f"<td>{live} of {full}</td></tr>"
        for name, (live, full) in standing.widths.items()
    )
    title = escape(f"{standing.model}: {', '.join(_facts(standing))}")
    return f"<table><caption>{title}</caption><tr><th>group</th><th></th><th>live units</th></tr>{rows}</table>"


def _facts(standing: Standing) -> list[str]:
    return [
        f"budget {standing.budget}",
        f"epoch {standing.epoch} of {standing.epochs}",
        *(f"{name} {share:.1%}" for name, share in standing.shares.items()),
        f"training cost {standing.training_cost:.1%}",
    ]
