"""A copy of the model with averaged weights, which has the structure of the model at all times.

To the model an average is what the state of an optimizer is: it belongs to a unit, leaves with it and returns with it.
The average of what has never lived is the weight itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meristem.errors import SurgeryError
from meristem.space.arrays import BoolArray
from meristem.space.nested_tensors import leave_shortcut
from meristem.space.space import Space
from meristem.surgery.model_tensors import ModelTensors
from meristem.surgery.module_tree import ModuleTree
from meristem.surgery.optimizer import Optimizers
from meristem.surgery.resize import take
from meristem.surgery.store import Store
from meristem.surgery.structure import move_blocks, write_sizes

Masks = Mapping[str, BoolArray]


class AveragedCopy:
    """Follows every change of a live model. ``key`` is the name of its averages in the store of that model.

    The copy is full-size, or as small as the model is now.
    """

    def __init__(self, copy: nn.Module, space: Space, store: Store, key: str, masks: Masks) -> None:
        self.model, self._space, self._store, self._key = copy, space, store, key
        self._tree = ModuleTree(copy)
        whole = {name: np.ones_like(mask) for name, mask in masks.items()}
        is_small = _fits(self._tree, space, masks)
        if not is_small and not _fits(self._tree, space, whole):
            raise SurgeryError(
                "the averaged copy has neither the size of the full model nor that of the model now, so its averages "
                "belong to units that nobody knows; make it from the model before the grower, or now"
            )
        self._tensors = ModelTensors(copy, self._tree, space, full_size=False)
        if not is_small:
            self._cut(whole, masks)

    def follow(self, changed: Collection[str], before: Masks, after: Masks, model: ModelTensors) -> None:
        """Become the copy of a ``model`` whose units have changed from those in ``before`` to those in ``after``."""
        for name, old, new in self._moved(changed, before, after):
            current, now = self._tensors.read(name), model.read(name).detach()
            if not current.is_floating_point():
                self._write(name, now.to(current.device, copy=True))
                continue
            values = self._store.exchange_state(name, self._key, current.detach(), old, new, now)
            self._write(name, values)
        self._restructure(after, changed)

    def state_dict(self) -> dict[str, Any]:
        """All averages by name, without copies."""
        return self._tensors.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], masks: Masks) -> None:
        """Become the copy that was kept, of a model with the units in ``masks``."""
        self._tensors.load_state_dict(state, next(self.model.parameters()).device, Optimizers(()))
        self._restructure(masks, set(masks))

    def check_state(self, state: Mapping[str, Any], masks: Masks) -> None:
        """Refuse the averages of another model."""
        self._tensors.check_state(state, masks)

    def _cut(self, whole: Masks, masks: Masks) -> None:
        for name, _, new in self._moved(set(masks), whole, masks):
            self._write(name, take(self._tensors.read(name).detach(), new).clone())
        self._restructure(masks, set(masks))

    def _moved(self, changed: Collection[str], before: Masks, after: Masks) -> list[tuple[str, Any, Any]]:
        """The tensors whose live positions change, with those before and after."""
        found = []
        for name in self._tensors.resizable:
            axes = self._space.axes(name)
            if any(group in changed for axis in axes for group in axis.groups):
                old = [np.flatnonzero(axis.live(before)) for axis in axes]
                new = [np.flatnonzero(axis.live(after)) for axis in axes]
                if not all(np.array_equal(was, now) for was, now in zip(old, new, strict=True)):
                    found.append((name, old, new))
        return found

    def _restructure(self, masks: Masks, changed: Collection[str]) -> None:
        move_blocks(self._tree, self._space, masks)
        write_sizes(self._tree, self._space, masks, changed)
        leave_shortcut(self.model)

    @torch.no_grad()
    def _write(self, name: str, values: Tensor) -> None:
        current, values = self._tensors.read(name), self._tensors.formatted(name, values)
        is_parameter = isinstance(current, nn.Parameter)
        self._tensors.write(name, nn.Parameter(values, current.requires_grad) if is_parameter else values)


def _fits(tree: ModuleTree, space: Space, masks: Masks) -> bool:
    """Whether every tensor is there, with the sizes that it has with these units."""
    for name, spec in space.tensors.items():
        try:
            tensor = tree.tensor_or_none(name)
        except AttributeError:
            return False
        sizes = [int(axis.live(masks).sum()) for axis in space.axes(name)]
        if tensor is not None and spec.is_parameter and list(tensor.shape) != sizes:
            return False
    return True
