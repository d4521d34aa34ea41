"""Numbers as people read them: percent, times, counts, savings, blocks per stage, a mean with its deviation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

_FEWEST_IN_MILLIONS = 10_000  # fewer would leave one digit of three decimals


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def blocks_text(blocks: Mapping[str, int]) -> str:
    """The blocks of each stage, as papers name such a network.

    >>> blocks_text({"stages.0": 23, "stages.1": 29, "stages.2": 31})
    '23-29-31'
    """
    return "-".join(str(count) for count in blocks.values())


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """The mean and, where there are several values that differ, the standard deviation.

    >>> mean_and_deviation([1.0, 2.0], 1), mean_and_deviation([1.0], 1)
    ('1.5 ± 0.7', '1.0')
    """
    mean = f"{statistics.mean(values):.{digits}f}"
    several = len(values) > 1 and all(map(math.isfinite, values))  # a perplexity that overflowed has no deviation
    deviation = f"{statistics.stdev(values) if several else 0.0:.{digits}f}"
    return f"{mean} ± {deviation}" if float(deviation) else mean


def count_text(counts: Sequence[float]) -> str:
    """The mean and the deviation of large counts, in millions where that leaves digits to read.

    >>> count_text([754_000.0, 759_000.0]), count_text([14_728_266.0]), count_text([1234.0])
    ('0.756 ± 0.004M', '14.73M', '1,234')
    """
    mean = statistics.mean(counts)
    if mean < _FEWEST_IN_MILLIONS:
        return f"{mean:,.0f}"
    return f"{mean_and_deviation([count / 1e6 for count in counts], 3 if mean < 1e7 else 2)}M"


def savings_text(savings: Sequence[float]) -> str:
    """How many times less training costs than that of the full model.

    >>> savings_text([4.95]), savings_text([4.83, 5.07])
    ('4.95x', '4.95 ± 0.17x')
    """
    return f"{mean_and_deviation(savings, 2)}x"
