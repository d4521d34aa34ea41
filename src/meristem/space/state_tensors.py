"""The state that a model returns and is given back: a tensor, or tensors in tuples, lists and dicts."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path


def state_tensors(state: Any) -> list[tuple[str, Tensor]]:
    """Return the tensors of a state, each with its place in it.

    >>> import torch
    >>> [path for path, _ in state_tensors([torch.zeros(2), (torch.zeros(2), None)])]
    ['state[0]', 'state[1][0]']
    """
    leaves = tree_flatten_with_path(state)[0]
    return [(f"state{keystr(path)}", leaf) for path, leaf in leaves if isinstance(leaf, Tensor)]
