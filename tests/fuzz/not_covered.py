"""Constructs that are known to go wrong, each with a module that shows it. The fuzzer leaves them out.

``test_fuzz.py`` fails when one of them goes right: then its line goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NOT_COVERED: Mapping[str, str] = MappingProxyType(
    {
        # The masked reference replays with gradients what the model computes under torch.no_grad(): only it is wrong.
        "without_gradient": "0 F layer_act:0 without_gradient:0",
    }
)
