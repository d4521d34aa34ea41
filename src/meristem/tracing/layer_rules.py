"""What rules about layers say of a certain model: sizes that follow tensors, dimensions that agree, minimum sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from torch import nn

from meristem.rules import LayerRule
from meristem.space.arrays import IntArray
from meristem.space.remembered_sizes import attribute_and_index, read_size
from meristem.tracing.labels import Dim, dim_of
from meristem.tracing.observations import Observations, SizeKey, TensorDim
from meristem.tracing.resolve import resolve


class LayerRules:
    """Layer rules applied to one model. Their tensors are named from the layer; here by the model's first name."""

    def __init__(self, model: nn.Module, rules: Sequence[LayerRule], observations: Observations) -> None:
        self._observations = observations
        self._matching = [
            (path, module, rule)
            for path, module in model.named_modules()
            for rule in rules
            if isinstance(module, rule.layer)
        ]
        self._first_names = _first_names(model)

    def tie(self) -> None:
        """Unite what has one size: by rule, and where one attribute was seen to be the size of several dimensions."""
        labels, by_rule = self._observations.labels, self.sizes()
        self._forget_fixed_sizes()
        told_apart = {key for key, vectors in self._observations.sizes.items() if key in by_rule and len(vectors) > 1}
        root = resolve(labels).root if told_apart else np.zeros(0, dtype=np.int64)
        for key, vectors in self._observations.sizes.items():
            path, name, _ = key
            mine = [ids for ids in vectors if key not in told_apart or not _is_of_another(root, ids, key, by_rule)]
            for one, two in pairwise(mine):
                if len(one) == len(two):
                    labels.unite(dim_of(one), dim_of(two), f"{path}.{name} is the size of both")
        for path, module, rule in self._matching:
            for tie in rule.ties(module):
                dims = [self._observations.owned.get(self._key(path, name, dim)) for name, dim in tie]
                for before, after in pairwise([dim for dim in dims if dim is not None]):
                    labels.unite(before, after, f"{type(module).__name__} {path} has one size for both")

    def _forget_fixed_sizes(self) -> None:
        """Where an attribute was seen to be the size of what may change and of what may not, only the former counts.

        The number of patches may happen to be the size of a head.
        """
        several = {key: vectors for key, vectors in self._observations.sizes.items() if len(vectors) > 1}
        resolution = resolve(self._observations.labels) if several else None
        for key, vectors in several.items():
            assert resolution is not None
            free = [ids for ids in vectors if resolution.leaves(ids)]
            self._observations.sizes[key] = free or vectors

    def sizes(self) -> dict[SizeKey, Dim]:
        """The dimension that each remembered size follows by rule."""
        return dict(self._sizes())

    def _sizes(self) -> Iterator[tuple[SizeKey, Dim]]:
        for path, module, rule in self._matching:
            for name, tensor, dim in rule.sizes(module):
                owned = self._observations.owned.get(self._key(path, tensor, dim))
                attribute, index = attribute_and_index(name)
                if owned is not None and read_size(module, attribute, index) == owned.size:
                    yield (path, attribute, index), owned

    def floors(self) -> dict[TensorDim, int]:
        """How few positions a dimension may have, where a rule says so."""
        return {
            self._key(path, name, dim): minimum
            for path, module, rule in self._matching
            for name, dim, minimum in rule.floors(module)
        }

    def _key(self, path: str, tensor: str, dim: int) -> TensorDim:
        return self._first_names.get(f"{path}.{tensor}" if path else tensor, ""), dim


def _is_of_another(root: IntArray, ids: IntArray, key: SizeKey, by_rule: Mapping[SizeKey, Dim]) -> bool:
    """Whether by rule another size of the module follows these labels, and this one follows others."""
    followed = [other for other, dim in by_rule.items() if _same(root, ids, dim) and other[0] == key[0]]
    return bool(followed) and key not in followed


def _same(root: IntArray, ids: IntArray, dim: Dim) -> bool:
    """Whether a dimension has these labels, or labels that are one thing with them."""
    return dim.ids is not None and np.array_equal(root[ids], root[dim.ids])


def _first_names(model: nn.Module) -> dict[str, str]:
    """For every name of a parameter or buffer the first one that the same tensor has."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    first = {id(tensor): name for name, tensor in reversed(named)}
    return {name: first[id(tensor)] for name, tensor in named}
