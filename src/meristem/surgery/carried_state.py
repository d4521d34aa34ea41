"""States that the user carries from batch to batch: resized, unit by unit, to fit the network as it is now.

A state does not say which network it belongs to, and units can be exchanged at the same width. So the networks that
states may still belong to are remembered, and a state is resized only if there is no doubt to which of them it belongs.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_map

from meristem.errors import SurgeryError
from meristem.space.arrays import BoolArray
from meristem.space.axis import Axis
from meristem.space.space import Space
from meristem.space.state_tensors import state_tensors
from meristem.surgery.resize import resized

Masks = Mapping[str, BoolArray]


class CarriedStates:
    """The networks that a carried state may belong to: before the last change, and before changes it missed."""

    def __init__(self, space: Space) -> None:
        self._axes = {state.path: state.axes for state in space.states}
        self._groups = {group for state in space.states for axis in state.axes for group in axis.groups}
        self._before: list[dict[str, BoolArray]] = []
        self._followed = False  # whether states have followed the last change
        self._resized: list[weakref.ref[Tensor]] = []  # what came out since then

    def changing(self, masks: Masks, after: Masks) -> None:
        """Remember the network with ``masks``, which becomes the one with ``after``.

        Where nothing changes, states that have followed the last change belong to the network that stays.
        """
        if self._same(masks, after):
            if self._followed:
                self.forget()
            return
        self._before = [*([] if self._followed else self._before), {group: masks[group] for group in self._groups}]
        self._followed, self._resized = False, []

    def forget(self) -> None:
        """Note that no state of another network is carried any more."""
        self._before, self._followed, self._resized = [], False, []

    @property
    def missed(self) -> list[dict[str, BoolArray]]:
        """The networks that states which have not followed the last change may belong to."""
        return [] if self._followed else self._before

    def restore(self, missed: Sequence[Mapping[str, BoolArray]]) -> None:
        """Set :attr:`missed`: a state that was kept together with it belongs to one of these networks."""
        self.forget()
        self._before = [dict(masks) for masks in missed]

    def fitted(self, state: Any, masks: Masks, trained: bool) -> Any:
        """Return ``state`` for the network with ``masks``; ``trained`` says whether that one has been trained."""
        if state is None:
            return None
        tensors = dict(state_tensors(state))
        self._check_form(tensors)
        resized_here = {id(tensor) for reference in self._resized if (tensor := reference()) is not None}
        if all(id(tensor) in resized_here for tensor in tensors.values()):
            return state
        owner = self._owner(tensors, masks, trained)
        self._followed = True
        if owner is None:
            return state
        return tree_map(lambda leaf: self._moved(leaf, tensors, owner, masks), state)

    def _owner(self, tensors: Mapping[str, Tensor], masks: Masks, trained: bool) -> Masks | None:
        """The network that a state belongs to, or None if it is the present one."""
        fits = self._fits(tensors, masks)
        others = [before for before in self._before if self._fits(tensors, before)]
        others = [before for before in others if not fits or not self._same(before, masks)]
        if not others:
            if not fits:
                raise SurgeryError(self._misfit(tensors, masks))
            return None
        if (fits and trained) or any(not self._same(other, others[-1]) for other in others):
            raise SurgeryError(
                "it cannot be told of which network this state is: units were exchanged at the same width; call "
                "resize_state once for every state after each step(), before training goes on"
            )
        return others[-1]

    def _fits(self, tensors: Mapping[str, Tensor], masks: Masks) -> bool:
        return all(
            tensor.shape[dim] == int(axis.live(masks).sum())
            for path, tensor in tensors.items()
            for dim, axis in enumerate(self._axes[path])
            if axis.parts
        )

    def _same(self, one: Masks, two: Masks) -> bool:
        return all(np.array_equal(one[group], two[group]) for group in self._groups)

    def _check_form(self, tensors: Mapping[str, Tensor]) -> None:
        if not self._axes:
            raise SurgeryError(
                "this network was traced without a state; say where it is with carried=..., e.g. trace(model, inputs, "
                "carried=1)"
            )
        if tensors.keys() != self._axes.keys():
            raise SurgeryError(
                f"this is not a state of this network: it has {_some(tensors)}, expected {_some(self._axes)}"
            )
        for path, tensor in tensors.items():
            if tensor.dim() != len(self._axes[path]):
                raise SurgeryError(
                    f"this is not a state of this network: {path} has {tensor.dim()} dimensions, expected "
                    f"{len(self._axes[path])}"
                )

    def _misfit(self, tensors: Mapping[str, Tensor], masks: Masks) -> str:
        """The message for a state that belongs to none of the networks."""
        for path, tensor in tensors.items():
            for dim, axis in enumerate(self._axes[path]):
                sizes = [int(axis.live(each).sum()) for each in [*self._before[-1:], masks]]
                if axis.parts and tensor.shape[dim] not in sizes:
                    had = f"had {sizes[0]} before its last change and " if len(sizes) > 1 else ""
                    return (
                        f"{path} has {tensor.shape[dim]} units in dimension {dim}, but the network {had}has "
                        f"{sizes[-1]} now; call resize_state after every step(), or start without a state"
                    )
        return "the tensors of this state are of different networks; call resize_state on the state as a whole"

    def _moved(self, leaf: Any, tensors: Mapping[str, Tensor], before: Masks, masks: Masks) -> Any:
        """A tensor of the state at its new size: units that stay keep their values, others start at zero."""
        path = next((path for path, tensor in tensors.items() if tensor is leaf), None)
        if path is None:
            return leaf
        axes = [axis if axis.parts else Axis(size) for axis, size in zip(self._axes[path], leaf.shape, strict=True)]
        old, new = ([np.flatnonzero(axis.live(of)) for axis in axes] for of in (before, masks))
        moved = resized(leaf.detach(), leaf.new_zeros(()).expand([axis.size for axis in axes]), old, new)
        self._resized.append(weakref.ref(moved))
        return moved


def _some(paths: Mapping[str, Any], most: int = 4) -> str:
    shown = list(paths)
    return (", ".join(shown[:most]) + (", ..." if len(shown) > most else "")) if shown else "no tensors"
