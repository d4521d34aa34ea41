"""What operations and layers do to the labels of the full model, so that no reduced one need work it out again.

A *token* says which dimensions of the full model a tensor has, or what is left of them. Where all arguments of an
operation have the tokens that they have in the full model, and it only passes dimensions on and lets those meet whose
every position has a unit, or none has, then its results have the tokens of the full model's results, too: units that
meet in the full model are one thing from there on, and what is left of one thing is the same everywhere. See
``natural.py`` for which operations and layers that holds of; all others apply their rule in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from meristem.space.arrays import IntArray
from meristem.tracing.labels import Dim
from meristem.tracing.run_record import Event

Token = tuple[Dim, ...]


@dataclass(frozen=True, eq=False, slots=True)
class OpBehaviour:
    """What an operation returned, and what it noted.

    ``single``: a tensor, not a tuple of some. ``plain``: results and arguments lay in memory row after row.
    """

    outs: tuple[Token, ...]
    dtypes: tuple[torch.dtype, ...]
    single: bool
    plain: bool
    events: tuple[Event, ...]
    users: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class LayerBehaviour:
    """What a layer returned: the same object that it was given, or a new one; what it noted, and what it used.

    ``last`` are the dimensions at hand in its last operation, if it has any.
    """

    out: Token
    dtype: torch.dtype
    same_object: bool
    events: tuple[Event, ...]
    users: tuple[str, ...]
    last: Token | None


class Behaviour:
    """The behaviour of a model, operation by operation and layer by layer; all runs of one trace share it."""

    def __init__(self) -> None:
        self.ops: dict[Hashable, OpBehaviour] = {}
        self.layers: dict[Hashable, LayerBehaviour | None] = {}
        self.possible: dict[Hashable, list[tuple[Token, ...]]] = {}  # results, by place and operation
        self._by_id: dict[int, tuple[Dim, Dim]] = {}  # dimensions are kept alive
        self._by_contents: dict[Hashable, Dim] = {}
        self._labels: dict[bytes, IntArray] = {}  # equal labels are one object

    def token(self, dims: Sequence[Dim]) -> Token:
        """The token of a tensor of the full model."""
        found = []
        for dim in dims:
            cached = self._by_id.get(id(dim))
            found.append(self._add(dim) if cached is None else cached[1])
        return tuple(found)

    def _add(self, dim: Dim) -> Dim:
        ids = None if dim.ids is None else hashlib.blake2b(np.ascontiguousarray(dim.ids).data, digest_size=16).digest()
        key = dim.size, ids, dim.constant, dim.origin, dim.merged
        canonical = self._by_contents.get(key)
        if canonical is None:
            labels = None if ids is None or dim.ids is None else self._labels.setdefault(ids, dim.ids)
            canonical = dim if labels is dim.ids else replace(dim, ids=labels)
            self._by_contents[key] = canonical
        self._by_id[id(dim)] = dim, canonical
        return canonical


def plain_arguments(values: Iterable[Any]) -> tuple[Any, ...]:
    """All that an operation is given but for what tokens tell."""
    parts: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            parts.append(value.dtype)
        elif type(value) in (list, tuple):
            parts.append(plain_arguments(value))
        else:
            parts += (type(value), value)
    return tuple(parts)
