"""The parameters and buffers of the live model, by their names in the space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from meristem.errors import SurgeryError
from meristem.space.arrays import BoolArray
from meristem.space.held_tensors import held_tensors
from meristem.space.space import Space
from meristem.surgery.module_tree import ModuleTree
from meristem.surgery.optimizer import Optimizers
from meristem.surgery.resized_parameter import resized_parameter


def is_channels_last(tensor: Tensor) -> bool:
    """Tell whether the channels of images or filters lie side by side in memory."""
    return tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


class ModelTensors:
    """Reads and writes tensors of the model: under all their names, in the memory format they were built in.

    ``resizable`` are the names of those that units own positions of. The model is full-size when this is made, which is
    checked, or a copy of one that is not.
    """

    def __init__(self, model: nn.Module, tree: ModuleTree, space: Space, *, full_size: bool = True) -> None:
        self._tree, self._space = tree, space
        self.resizable = list(dict.fromkeys(site.tensor for site in space.sites))
        if full_size:
            self._check_full_size()
        held = held_tensors(model)
        self._held = {name: held.get(id(self.read(name)), []) for name in self.resizable}
        self._channels_last = {name for name in self.resizable if is_channels_last(self.read(name))}

    def read(self, name: str) -> Tensor:
        """Return a tensor of the model."""
        return self._tree.tensor(name)

    def write(self, name: str, tensor: Tensor) -> None:
        """Put ``tensor`` into every module attribute that holds this one, and into lists and the like."""
        for alias in self._space.tensors[name].names:
            self._tree.write(alias, tensor)
        for place in self._held.get(name, ()):
            place.write(tensor)

    def formatted(self, name: str, values: Tensor) -> Tensor:
        """Return ``values`` in the memory format of the tensor."""
        if name in self._channels_last:
            return values.contiguous(memory_format=torch.channels_last)
        return values.contiguous()

    def state_dict(self) -> dict[str, Any]:
        """Return all tensors by name, without copies; buffers that the space does not know come apart."""
        tensors = {name: self._tree.tensor_or_none(name) for name in self._space.tensors}
        names = {alias for tensor in self._space.tensors.values() for alias in tensor.names}
        return {
            "tensors": {name: None if tensor is None else tensor.detach() for name, tensor in tensors.items()},
            # Registered since the model was traced.
            "buffers": {name: buffer for name, buffer in self._tree.buffers().items() if name not in names},
        }

    def check_state(self, state: Mapping[str, Any], masks: Mapping[str, BoolArray]) -> None:
        """Refuse tensors that are not those of this model with the units in ``masks``."""
        if set(state["tensors"]) != set(self._space.tensors):
            raise SurgeryError("what was kept belongs to a model with other tensors than this one")
        for name, tensor in self._space.tensors.items():
            if not tensor.is_parameter and name not in self.resizable:
                continue  # a buffer that no unit owns may have any size: a cache that grows, say
            expected = [int(axis.live(masks).sum()) for axis in self._space.axes(name)]
            if state["tensors"][name] is None or list(state["tensors"][name].shape) != expected:
                raise SurgeryError(f"what was kept does not fit: {name} has not the size {expected}")

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device, optimizers: Optimizers) -> None:
        """Take over the tensors of ``state``; a parameter of another size is a new one in its optimizer slot."""
        slots = optimizers.slots()
        for name, buffer in state["buffers"].items():
            self._tree.write_buffer(name, buffer.to(device, copy=True))
        for name in self._space.tensors:
            current, kept = self._tree.tensor_or_none(name), state["tensors"][name]
            if current is None or kept is None:  # a buffer
                for alias in self._space.tensors[name].names:
                    self._tree.write_buffer(alias, None if kept is None else kept.to(device, copy=True))
                continue
            values = self.formatted(name, kept.to(current.device, current.dtype, copy=True))
            if tuple(current.shape) == tuple(values.shape):
                with torch.no_grad():
                    current.copy_(values)
                current.grad = None
            elif not isinstance(current, nn.Parameter):
                self.write(name, values)
            else:
                parameter = resized_parameter(values, current.requires_grad, self._space.tensors[name].shape)
                self.write(name, parameter)
                if id(current) in slots:
                    optimizers.replace_without_state(slots[id(current)], current, parameter)

    def _check_full_size(self) -> None:
        """Refuse a model that is not the one that the space was traced with."""
        for name, spec in self._space.tensors.items():
            try:
                tensor = self.read(name)
            except AttributeError:
                raise SurgeryError(
                    f"the model has no tensor {name!r}, which the space was traced with; trace it again"
                ) from None
            if tuple(tensor.shape) != spec.shape:
                raise SurgeryError(
                    f"the model's {name} is {tuple(tensor.shape)}, but the space was traced with {spec.shape}; "
                    f"a live model starts from the full-size one"
                )
