"""Constructs that are known to go wrong, each with a module that shows it. The fuzzer leaves them out.

``test_fuzz.py`` fails when one of them goes right: then its line goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NOT_COVERED: Mapping[str, str] = MappingProxyType(
    {
        # Whether the sum of two widths is even: it is in each of the trials.
        "if_even": "93 S layer_act:394315352 dense:1681135917 if_even:1579948756",
    }
)
