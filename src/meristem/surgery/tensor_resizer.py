"""Resize the tensors of a model one by one, each with its gradient, its optimizer state and its fresh values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from meristem.space.arrays import BoolArray
from meristem.space.space import Space
from meristem.surgery.fresh import Fresh
from meristem.surgery.fresh_blocks import FreshBlockValues
from meristem.surgery.fresh_units import with_fresh_units
from meristem.surgery.model_tensors import ModelTensors
from meristem.surgery.optimizer import Optimizers, Slot
from meristem.surgery.resize import Positions, resized
from meristem.surgery.resized_parameter import resized_parameter
from meristem.surgery.store import Store

Masks = Mapping[str, BoolArray]


class TensorResizer:
    """Moves what leaves the model to the store, and fetches from there what comes in."""

    def __init__(
        self,
        space: Space,
        tensors: ModelTensors,
        store: Store,
        optimizers: Optimizers,
        fresh: Fresh,
        block_values: FreshBlockValues,
    ) -> None:
        self._space, self._tensors, self._store, self._optimizers = space, tensors, store, optimizers
        self._fresh, self._block_values = fresh, block_values

    def check_optimizer_state(self) -> None:
        """Refuse to resize anything while an optimizer keeps what no rule names."""
        slots = self._optimizers.slots()
        for name in self._tensors.resizable:
            parameter = self._tensors.read(name)
            if isinstance(parameter, nn.Parameter) and id(parameter) in slots:
                self._optimizers.check_state(slots[id(parameter)], name, parameter)

    def resize(self, groups: Collection[str], before: Masks, after: Masks, grown: Masks) -> None:
        """Resize every tensor that ``groups`` own positions of, from the units in ``before`` to those in ``after``.

        ``grown`` are the units that have never lived: they start as the rule for fresh ones says.
        """
        slots = self._optimizers.slots()
        for name in self._tensors.resizable:
            axes = self._space.axes(name)
            if any(group in groups for axis in axes for group in axis.groups):
                old = [np.flatnonzero(axis.live(before)) for axis in axes]
                new = [np.flatnonzero(axis.live(after)) for axis in axes]
                if not all(np.array_equal(was, now) for was, now in zip(old, new, strict=True)):
                    self._resize(name, old, new, grown, slots)

    def _resize(self, name: str, old: Positions, new: Positions, grown: Masks, slots: Mapping[int, Slot]) -> None:
        current = self._tensors.read(name)
        with torch.no_grad():
            values = self._store.exchange(name, current.detach(), old, new)
            if isinstance(current, nn.Parameter) and values.numel():
                values = self._with_fresh(name, values, new, grown, current.requires_grad)
            values = self._tensors.formatted(name, values)
        if not isinstance(current, nn.Parameter):
            self._tensors.write(name, values)
            return
        parameter = resized_parameter(values, current.requires_grad, self._space.tensors[name].shape)
        parameter.grad = self._gradient(name, current, parameter, old, new)
        self._tensors.write(name, parameter)
        if id(current) in slots:
            self._optimizers.replace(
                slots[id(current)],
                current,
                parameter,
                lambda key, state, fill, averaged: self._tensors.formatted(
                    name, self._store.exchange_state(name, key, state, old, new, fill, averaged)
                ),
            )

    def _with_fresh(self, name: str, values: Tensor, positions: Positions, grown: Masks, trained: bool) -> Tensor:
        block_values = self._block_values.values(self._fresh, name, values, grown) if trained else None
        if block_values is not None:
            return block_values
        return with_fresh_units(self._space, self._fresh, name, values, positions, grown)

    @torch.no_grad()
    def _gradient(
        self, name: str, current: nn.Parameter, parameter: nn.Parameter, old: Positions, new: Positions
    ) -> Tensor | None:
        """The gradient at the new size, zero for what comes in.

        There is none in an absent block, so that it takes no part in a step, nor where it is sparse: every step makes
        such a one anew.
        """
        if current.grad is None or current.grad.is_sparse or not parameter.numel():
            return None
        zeros = current.grad.new_zeros(()).expand(self._space.tensors[name].shape)
        return self._tensors.formatted(name, resized(current.grad, zeros, old, new))
