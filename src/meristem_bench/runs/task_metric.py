"""How a metric is shown and whether more of it is better: decided here by its name, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Plain numbers, less is better; all others are shares, more is better.
_PLAIN = ("loss", "perplexity", "bits_per_byte")


@dataclass(frozen=True)
class TaskMetric:
    """
    >>> metric("accuracy").text(0.914), metric("perplexity").text(82.46), metric("bits_per_byte").text(1.234)
    ('91.4 %', '82.5', '1.23')
    """

    name: str
    is_share: bool = True  # shown in percent; otherwise the number itself is shown
    more_is_better: bool = True

    @property
    def title(self) -> str:
        """For a column of `shown` values."""
        return f"{self.name}, %" if self.is_share else self.name

    def shown(self, value: float) -> float:
        return 100 * value if self.is_share else value

    @property
    def digits(self) -> int:
        """Behind the point, in a table of results."""
        return 3 if self.name == "bits_per_byte" else 2

    def text(self, value: float, digits: int | None = None) -> str:
        """With one digit less than in a table unless the number is given."""
        digits = self.digits - 1 if digits is None else digits
        return f"{self.shown(value):.{digits}f}{' %' * self.is_share}"

    def change(self, value: float, other: float) -> str:
        """How ``value`` differs from the ``other`` it is compared with.

        >>> metric("accuracy").change(0.91, 0.92), metric("perplexity").change(82.5, 80.0)
        ('-1.00 points', '+2.50 (worse)')
        """
        difference = f"{self.shown(value) - self.shown(other):+.{self.digits}f}"
        if self.is_share:
            return f"{difference} points"
        if not float(difference):
            return difference
        return f"{difference} ({'better' if (value > other) == self.more_is_better else 'worse'})"


def metric(name: str) -> TaskMetric:
    return TaskMetric(name, is_share=False, more_is_better=False) if name in _PLAIN else TaskMetric(name)


def headline(result: Mapping[str, Any]) -> TaskMetric:
    """The metric that a result is judged by, as it says itself; one of an early version names a share."""
    written = result.get("metric", {})
    return TaskMetric(result["headline"], written.get("is_share", True), written.get("more_is_better", True))
