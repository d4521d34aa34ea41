"""The kinds of cost that a budget can cap. A new kind is one more :class:`Metric` in ``METRICS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meristem.cost.count import count_macs, count_params
from meristem.space.space import Space

Widths = Mapping[str, float]
UnitPrice = Callable[[Callable[[Widths], float], Widths, str], float]  # (cost of widths, widths, group) -> price


def one_unit_around(cost: Callable[[Widths], float], widths: Widths, group: str) -> float:
    """Return what one unit of ``group`` costs: half a unit more against half a unit less, never below no unit.

    >>> one_unit_around(lambda widths: widths["a"] ** 2, {"a": 3.0}, "a")
    6.0
    """
    less = {**widths, group: max(0.0, widths[group] - 0.5)}
    more = {**widths, group: less[group] + 1.0}
    return cost(more) - cost(less)


@dataclass(frozen=True)
class Metric:
    """One kind of cost.

    ``name`` is its word in budgets and records, ``label`` what a reader sees, ``unit`` what follows a number.
    ``count`` gives the cost of a network from its widths, which may be fractional: a closed form, or a measured table
    that is interpolated. It must rise with every width. ``unit_price`` says what one unit more costs; it is called with
    the cost as a function of the widths.
    """

    name: str
    label: str
    unit: str
    count: Callable[[Space, Widths], float]
    unit_price: UnitPrice = one_unit_around


PARAMS = Metric("params", "parameters", "parameters", count_params)
MACS = Metric("macs", "multiply-adds", "macs", count_macs)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (PARAMS, MACS)}
