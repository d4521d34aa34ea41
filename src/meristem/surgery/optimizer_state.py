"""The state of one parameter in an optimizer, resized by the kind of each entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from meristem.errors import SurgeryError
from meristem.rules import StateKind

# What of a parameter's dimensions an entry is averaged over.
AVERAGED_DIM = {StateKind.ROW_MOMENT: -1, StateKind.COLUMN_MOMENT: -2}

# (state key, current, value where nothing ever lived, dimension that is averaged over) -> resized
Exchange = Callable[[str, Tensor, "float | Tensor", "int | None"], Tensor]


def check_state(state: Mapping[str, Any], kinds: Mapping[str, StateKind], shape: torch.Size, where: str) -> None:
    """Refuse entries that no rule names, or that have not the shape of their kind."""
    for key, value in state.items():
        kind = kinds.get(key)
        if kind is StateKind.SCALAR or (isinstance(value, Tensor) and kind is None and value.numel() <= 1):
            continue
        if kind is None:
            if isinstance(value, (Tensor, list, tuple, dict)):
                raise SurgeryError(
                    f"{where} keeps {key!r}, which the rule for this optimizer does not name, so it cannot be resized; "
                    f"say of which kind it is: rules=[meristem.rules.OptimizerRule(...)]"
                )
        elif isinstance(value, Tensor) and value.shape not in _shapes(kind, shape):
            raise SurgeryError(
                f"{where} keeps {key!r} of the shape {tuple(value.shape)}, which is not that of a "
                f"{kind.name.lower().replace('_', ' ')} of a parameter of the shape {tuple(shape)}; give it another "
                f"kind: rules=[meristem.rules.OptimizerRule(...)]"
            )


def resize_state(
    state: dict[str, Any], kinds: Mapping[str, StateKind], weights: nn.Parameter, exchange: Exchange
) -> None:
    """Resize the entries of a state in place, for a parameter that is ``weights`` now. What stays keeps its numbers.

    Of a second moment that is factored into rows and columns the product counts, row * column / mean(row). So columns
    are exchanged as what they are to the mean of the rows: rows that come or go change nothing for those that stay.
    """
    keys = {kind: key for key, kind in kinds.items() if isinstance(state.get(key), Tensor)}
    row, column = keys.get(StateKind.ROW_MOMENT), keys.get(StateKind.COLUMN_MOMENT)
    if row is not None and column is not None:
        mean = _mean_of_rows(state[row], weights)
        state[column] = torch.where(mean > 0, state[column] / mean, 0.0)
    for key, kind in kinds.items():
        value = state.get(key)
        if isinstance(value, Tensor) and kind is not StateKind.SCALAR:
            state[key] = _resized(key, value, kind, weights, exchange)
    if row is not None and column is not None:
        state[column] = state[column] * _mean_of_rows(state[row], weights)


def _resized(key: str, value: Tensor, kind: StateKind, weights: nn.Parameter, exchange: Exchange) -> Tensor:
    dim = AVERAGED_DIM.get(kind)
    if dim is None or value.dim() == weights.dim():
        return exchange(key, value, _fresh(kind, value, weights), dim)
    return exchange(key, value.unsqueeze(dim), _fresh(kind, value, weights), dim).squeeze(dim)


def _mean_of_rows(rows: Tensor, weights: nn.Parameter) -> Tensor:
    """The mean over the rows, as a factor for columns; 1 where there are none, in an absent block."""
    dim = -2 if rows.dim() == weights.dim() else -1
    return rows.mean(dim, keepdim=True) if rows.shape[dim] else torch.ones_like(rows.sum(dim, keepdim=True))


def _shapes(kind: StateKind, shape: torch.Size) -> list[torch.Size]:
    dim = AVERAGED_DIM.get(kind)
    if dim is None:
        return [shape]
    if len(shape) < 2:
        return []
    kept, dropped = list(shape), list(shape)
    kept[dim] = 1
    del dropped[dim]
    return [torch.Size(kept), torch.Size(dropped)]


def _fresh(kind: StateKind, current: Tensor, weights: nn.Parameter) -> float | Tensor:
    """What units start with that have never lived. A second moment of zero would make their first steps leaps."""
    if kind is StateKind.FIRST_MOMENT:
        return 0.0
    return weights.detach() if kind is StateKind.WEIGHTS else float(current.mean())
