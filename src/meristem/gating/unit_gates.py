"""Gates in the forward pass: the weights that read a unit are scaled by its gate while the reading module runs.

Modules stay plain. A forward pre-hook puts the scaled weight in the parameter's place, a forward hook puts the
parameter back; gradients flow to the weight and to the gate. torch.compile traces both without a graph break, if
:meth:`Gates.attach` was called after the last change of the network: what it looks up is then there already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from meristem.errors import SurgeryError
from meristem.gating.hooks import AttachableHooks
from meristem.space.axis import Axis
from meristem.space.live_index import live_places
from meristem.space.paths import is_inside
from meristem.space.space import Slot
from meristem.surgery.live import Live

Values = Callable[[str], Tensor | None]  # group -> the gates of its live units, in order; None: not gated


class Gates(AttachableHooks):
    """Gates attached to a live model until :meth:`detach`.

    ``values(group)`` is asked at every forward pass, so it may be a parameter, a function of scores, or a constant.
    ``slots`` are the attributes that are scaled, see `gating/placement.py`; by default those that read units.
    ``resting`` are the gates of modules in evaluation mode and of what is folded, if those of training are random.
    """

    def __init__(
        self, live: Live, values: Values, slots: Sequence[Slot] | None = None, resting: Values | None = None
    ) -> None:
        super().__init__()
        self.live, self.values, self.resting = live, values, resting or values
        self.slots = live.space.slots if slots is None else slots
        self._index: dict[tuple[str, int], list[tuple[str, Tensor, Tensor | None]]] = {}
        self._version = -1
        self.attach()

    def attach(self) -> None:
        """Also after every change of the network, where it is compiled."""
        super().attach()
        for slot in self.slots:
            self._parts(slot.tensor, slot.dim)

    def _hooks(self) -> list[RemovableHandle]:
        handles: list[RemovableHandle] = []
        runners: dict[str, list[Slot]] = {}
        for slot in self.slots:
            runners.setdefault(slot.runner, []).append(slot)
        for path, slots in runners.items():
            swap = _Swap(self, slots)
            module = self.live.tree.module(path)
            handles.append(module.register_forward_pre_hook(swap.enter))
            handles.append(module.register_forward_hook(swap.leave, always_call=True))
        return handles

    @torch.no_grad()
    def fold(self, model: nn.Module) -> None:
        """Multiply the gates into the weights of ``model``: a copy of the live one, or that itself once detached."""
        absent = self.live.tree.absent
        for tensor, dim in dict.fromkeys((slot.tensor, slot.dim) for slot in self.slots):
            in_absent_block = any(is_inside(tensor, block) for block in absent)
            factor = None if in_absent_block else self.scale(tensor, dim, training=False)
            if factor is not None:
                weight = model.get_parameter(tensor)
                shape = [1] * weight.dim()
                shape[dim] = -1
                weight.mul_(factor.detach().to(weight.device, weight.dtype).view(shape))

    def scale(self, tensor: str, dim: int, training: bool = True) -> Tensor | None:
        """The factor for every live position of a dimension, or None if no gate touches it."""
        factor: Tensor | None = None
        for group, unit, owned in self._parts(tensor, dim):
            values = self.values(group) if training else self.resting(group)
            if values is None:
                continue
            gate = values[unit.to(values.device)]
            if owned is not None:
                gate = torch.where(owned.to(values.device), gate, torch.ones((), device=gate.device, dtype=gate.dtype))
            factor = gate if factor is None else factor * gate
        return factor

    def _parts(self, tensor: str, dim: int) -> list[tuple[str, Tensor, Tensor | None]]:
        if self._version != self.live.version:
            self._index.clear()
            self._version = self.live.version
        key = (tensor, dim)
        if key not in self._index:
            self._index[key] = _live_parts(self.live, self.live.space.axes(tensor)[dim])
        return self._index[key]


def _live_parts(live: Live, axis: Axis) -> list[tuple[str, Tensor, Tensor | None]]:
    """Per part: the group, for every live position the place of its unit among the live ones, and which are owned."""
    parts = []
    for group, units in live.owners(axis):  # a block has a gate of its own, see block_gates.py
        owned = units >= 0
        index = torch.from_numpy(live_places(live.masks[group])[np.maximum(units, 0)] * owned)
        parts.append((group, index, None if owned.all() else torch.from_numpy(owned)))
    return parts


class _Swap:
    """Exchanges the parameters of one running module for scaled ones and back."""

    def __init__(self, gates: Gates, slots: Sequence[Slot]) -> None:
        self._gates, self._slots = gates, slots
        self._owners = [gates.live.tree.module(slot.owner) for slot in slots]
        self._plain: list[list[tuple[nn.Module, str, Tensor]]] = []

    def __reduce__(self) -> NoReturn:
        """A copy of the model would run without its gates, or share those of this one."""
        raise SurgeryError(
            "a model whose gates are attached cannot be copied or pickled; take grower.export(), or detach the gates"
        )

    def enter(self, module: nn.Module, args: Any) -> None:
        plain: list[tuple[nn.Module, str, Tensor]] = []
        self._plain.append(plain)  # first, so that leave() restores what is swapped if anything below raises
        for slot, owner in zip(self._slots, self._owners, strict=True):
            factor = self._gates.scale(slot.tensor, slot.dim, module.training)
            weight = owner._parameters[slot.name]
            if factor is None or weight is None:
                continue
            plain.append((owner, slot.name, weight))
            shape = [1] * weight.dim()
            shape[slot.dim] = -1
            _place(owner, slot.name, weight * factor.to(weight.dtype).view(shape))

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._plain:
            for owner, name, weight in reversed(self._plain.pop()):
                _place(owner, name, weight)


def _place(owner: nn.Module, name: str, tensor: Tensor) -> None:
    owner._parameters[name] = tensor  # type: ignore[assignment]
    if isinstance(owner, nn.RNNBase):  # fused kernels read this list, not the attributes
        owner._flat_weights[owner._flat_weights_names.index(name)] = tensor
