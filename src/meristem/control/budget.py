"""Budgets: what the final network may cost, and what training may spend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meristem.cost.metrics import METRICS
from meristem.cost.price import Prices
from meristem.errors import BudgetError

Amount = int | float | str


@dataclass(frozen=True)
class Budget:
    """Caps on the final network, and on the cost of training it.

    An amount is a share of the full model ("36%", or a float up to 1) or an absolute number (a whole number; macs are
    those of one forward pass of the example inputs). ``spend`` is a share of the training cost of the dense run.
    Several caps hold at once.

    >>> Budget(params="36%", spend=0.3)
    Budget(params='36%', macs=None, spend=0.3)
    >>> print(Budget.parse("params=36%,macs=1000000"))
    params 36%, macs 1,000,000
    """

    params: Amount | None = None
    macs: Amount | None = None
    spend: Amount | None = None

    def __post_init__(self) -> None:
        if self.params is None and self.macs is None:
            raise BudgetError("a budget needs params or macs, e.g. Budget(params='36%')")
        for name in (*METRICS, "spend"):
            amount = getattr(self, name)
            if isinstance(amount, np.number):
                amount = amount.item()
                object.__setattr__(self, name, amount)
            if amount is not None:
                _value(name, amount)

    @classmethod
    def parse(cls, text: str) -> Budget:
        """From ``params=36%,macs=50%``; a single amount without a name is a share or number of the parameters."""
        if "=" not in text and "," not in text:
            return cls(params=text.strip())
        amounts: dict[str, Amount] = {}
        for piece in text.split(","):
            name, equals, amount = (part.strip() for part in piece.partition("="))
            if name not in (*METRICS, "spend") or not equals:
                raise BudgetError(f"the budget {text!r} is not of the form params=36%,macs=50%,spend=30%")
            if name in amounts:
                raise BudgetError(f"the budget {text!r} names {name} twice")
            amounts[name] = amount
        return cls(**amounts)

    def shares(self, prices: Prices) -> dict[str, float]:
        """The caps as shares of the dense cost, by metric; refuses what no network of the space can meet."""
        found = self.shares_of(prices.dense)
        for name, share in found.items():
            if share < prices.smallest[name] * (1 - 1e-12):
                dense = prices.dense[name]
                raise BudgetError(
                    f"the budget of {_text(getattr(self, name))} {name} cannot be met: the smallest network of this "
                    f"space has {prices.smallest[name] * dense:,.0f} ({prices.smallest[name]:.2%}), the full one "
                    f"{dense:,.0f} {METRICS[name].unit}"
                )
        return found

    def shares_of(self, dense: Mapping[str, float]) -> dict[str, float]:
        """The caps as shares of a dense cost, whether they can be met or not; none where that cost is not known.

        >>> Budget(params="36%", macs=500).shares_of({"macs": 1000.0})
        {'params': 0.36, 'macs': 0.5}
        """
        found = {}
        for name in METRICS:
            if (amount := getattr(self, name)) is not None:
                value, is_share = _value(name, amount)
                if is_share or name in dense:
                    found[name] = min(value if is_share else value / dense[name], 1.0)
        return found

    @property
    def spend_share(self) -> float | None:
        if self.spend is None:
            return None
        value, is_share = _value("spend", self.spend)
        assert is_share
        return value

    def __str__(self) -> str:
        amounts = {name: getattr(self, name) for name in (*METRICS, "spend")}
        return ", ".join(f"{name} {_text(amount)}" for name, amount in amounts.items() if amount is not None)


def _value(name: str, amount: Amount) -> tuple[float, bool]:
    """The number and whether it is a share."""
    text = str(amount).strip()
    try:
        percent = text.endswith("%")
        value = float(text[:-1]) / 100 if percent else float(text)
        whole = isinstance(amount, int) or (isinstance(amount, str) and not percent and text.lstrip("+").isdigit())
    except ValueError:
        value, percent, whole = math.nan, False, False
    is_share = percent or not whole
    if isinstance(amount, bool) or not math.isfinite(value) or value <= 0 or (is_share and value > 1):
        raise BudgetError(
            f"{name}={amount!r} is not an amount: write a share up to 100% like '36%' or 0.36, or a whole number like "
            f"96000"
        )
    if name == "spend" and not is_share:
        raise BudgetError(f"spend={amount!r} must be a share of the dense run's training cost, e.g. '30%'")
    return value, is_share


def _text(amount: Amount) -> str:
    value, is_share = _value("", amount)
    return f"{value * 100:g}%" if is_share else f"{value:,.0f}"
