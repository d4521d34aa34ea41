"""State dicts that torch.save writes and torch.load reads with its safe default: numpy arrays travel as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

_ARRAY = "numpy array"


def portable(state: Any) -> Any:
    """The same state with every numpy array as a marked tensor, and mappings as plain dicts.

    >>> restored(portable({"mask": np.array([True, False]), "epoch": 3}))
    {'mask': array([ True, False]), 'epoch': 3}
    """
    if isinstance(state, np.ndarray):
        return {_ARRAY: torch.from_numpy(state)}
    if isinstance(state, Mapping):
        return {key: portable(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(portable(value) for value in state)
    return state


def restored(state: Any) -> Any:
    """The inverse of :func:`portable`; arrays are copies."""
    if isinstance(state, Mapping):
        if state.keys() == {_ARRAY}:
            return state[_ARRAY].cpu().numpy().copy()
        return {key: restored(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(restored(value) for value in state)
    return state
