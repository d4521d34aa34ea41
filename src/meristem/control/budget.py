"""Budgets: what the final network may cost, and what training may spend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from meristem.cost.metrics import METRICS
from meristem.cost.price import Prices
from meristem.errors import BudgetError, nearest

Amount = int | float | str


SPEND = "spend"  # the cap on the cost of training, beside those on the final network
FLOPS = "flops"  # another word for macs, of which one is two


class Budget:
    """Caps on the final network, and on the cost of training it.

    An amount is a share of the full model ("36%", or a float up to 1) or an absolute number (a whole number; macs are
    those of one forward pass of the example inputs). ``spend`` is a share of the training cost of the dense run. Every
    metric of `cost/metrics.py` may be capped by its name, and macs as ``flops``, two to a multiply-add. Several caps
    hold at once.

    >>> Budget(params="36%", spend=0.3)
    Budget(params='36%', spend=0.3)
    >>> Budget(flops=2_000_000)
    Budget(macs=1000000)
    >>> print(Budget.parse("params=36%,macs=1000000"))
    params 36%, macs 1,000,000
    """

    def __init__(
        self,
        params: Amount | None = None,
        macs: Amount | None = None,
        spend: Amount | None = None,
        **others: Amount | None,
    ) -> None:
        if (flops := others.pop(FLOPS, None)) is not None:
            if macs is not None:
                raise BudgetError("a budget names macs or flops, which are two to a multiply-add, not both")
            macs = _macs_of(flops)
        given = {"params": params, "macs": macs, **others, SPEND: spend}
        if unknown := [name for name in given if name not in (*METRICS, SPEND)]:
            raise BudgetError(f"a budget cannot cap {unknown[0]!r}; {nearest(unknown[0], [*METRICS, SPEND])}")
        amounts = tuple((name, _plain(amount)) for name, amount in given.items() if amount is not None)
        if not any(name in METRICS for name, _ in amounts):
            raise BudgetError(f"a budget needs {' or '.join(METRICS)}, e.g. Budget(params='36%')")
        for name, amount in amounts:
            _value(name, amount)
        self._amounts = amounts

    @classmethod
    def parse(cls, text: str) -> Budget:
        """From ``params=36%,macs=50%``; a single amount without a name is a share or number of the parameters."""
        if text.strip()[:1].isdigit() and "," not in text:
            return cls(params=text.strip())
        amounts: dict[str, Amount] = {}
        for piece in text.split(","):
            name, equals, amount = (part.strip() for part in piece.partition("="))
            if name not in (names := [*METRICS, FLOPS, SPEND]) or not equals:
                meant = f"; {nearest(name, names)}" if equals else ""
                raise BudgetError(f"the budget {text!r} is not of the form params=36%,macs=50%,spend=30%{meant}")
            if name in amounts:
                raise BudgetError(f"the budget {text!r} names {name} twice")
            amounts[name] = amount
        return cls(**amounts)

    def replace(self, **amounts: Amount | None) -> Budget:
        """The same budget with other caps on these metrics; None takes one away.

        >>> Budget(params="36%").replace(spend="30%")
        Budget(params='36%', spend='30%')
        """
        return Budget(**{**dict(self._amounts), **amounts})

    @property
    def amounts(self) -> tuple[tuple[str, Amount], ...]:
        """All caps by metric, those of the final network first."""
        return self._amounts

    def amount(self, name: str) -> Amount | None:
        """The cap on a metric as it was given, if there is one."""
        return dict(self.amounts).get(name)

    @property
    def params(self) -> Amount | None:
        return self.amount("params")

    @property
    def macs(self) -> Amount | None:
        return self.amount("macs")

    @property
    def spend(self) -> Amount | None:
        return self.amount(SPEND)

    def shares(self, prices: Prices) -> dict[str, float]:
        """The caps as shares of the dense cost, by metric; refuses what no network of the space can meet."""
        shares = self.shares_of(prices.dense)
        for name, share in shares.items():
            if share < prices.smallest[name] * (1 - 1e-12):
                dense, amount = prices.dense[name], dict(self.amounts)[name]
                value, is_share = _value(name, amount)
                forgotten = not is_share and value <= 100 < dense  # no network of use has so few of anything
                meant = f"; did you mean {name}={value:g}%?" if forgotten else ""
                raise BudgetError(
                    f"the budget of {_text(amount)} {name} cannot be met: the smallest network of "
                    f"this space has {prices.smallest[name] * dense:,.0f} ({prices.smallest[name]:.2%}), the full one "
                    f"{dense:,.0f} {METRICS[name].unit}{meant}"
                )
        return shares

    def shares_of(self, dense: Mapping[str, float]) -> dict[str, float]:
        """The caps as shares of a dense cost, whether they can be met or not; none where that cost is not known.

        >>> Budget(params="36%", macs=500).shares_of({"macs": 1000.0})
        {'params': 0.36, 'macs': 0.5}
        """
        shares = {}
        for name, amount in self.amounts:
            if name in METRICS:
                value, is_share = _value(name, amount)
                if is_share or name in dense:
                    shares[name] = min(value if is_share else value / dense[name], 1.0)
        return shares

    @property
    def spend_share(self) -> float | None:
        """The cap on the training cost as a share of the dense run's."""
        if self.spend is None:
            return None
        value, is_share = _value(SPEND, self.spend)
        assert is_share
        return value

    @property
    def text(self) -> str:
        """What :meth:`parse` reads back."""
        return ",".join(f"{name}={amount}" for name, amount in self.amounts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budget) and self._amounts == other._amounts

    def __hash__(self) -> int:
        return hash(self._amounts)

    def __repr__(self) -> str:
        return f"Budget({', '.join(f'{name}={amount!r}' for name, amount in self.amounts)})"

    def __str__(self) -> str:
        return ", ".join(f"{name} {_text(amount)}" for name, amount in self.amounts)


def _plain(amount: Any) -> Amount:
    """A number of Python's for one of numpy's."""
    plain: Amount = amount.item() if isinstance(amount, np.number) else amount
    return plain


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
    if name == SPEND and not is_share:
        raise BudgetError(f"spend={amount!r} must be a share of the dense run's training cost, e.g. '30%'")
    return value, is_share


def _macs_of(flops: Amount) -> Amount:
    """The same as macs: a share is the same share, a number half of it."""
    value, is_share = _value(FLOPS, flops)
    return flops if is_share else int(value) // 2


def _text(amount: Amount) -> str:
    value, is_share = _value("", amount)
    return f"{value * 100:g}%" if is_share else f"{value:,.0f}"
