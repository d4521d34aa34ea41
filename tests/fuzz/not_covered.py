"""Constructs that are known to go wrong, with the reason. The fuzzer leaves them out unless it is told not to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NOT_COVERED: Mapping[str, str] = MappingProxyType({})
