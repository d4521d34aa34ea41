"""Constructs that are known to go wrong, each with a module that shows it. The fuzzer leaves them out.

``test_fuzz.py`` fails when one of them goes right: then its line goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NOT_COVERED: Mapping[str, str] = MappingProxyType({})
