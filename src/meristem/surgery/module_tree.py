"""The modules of a model by their paths in the full one, whether they are in it at the moment or not.

A block that is absent is kept here, emptied by the resizing of its tensors, so that it comes back as the same module.
"""

from __future__ import annotations

from torch import Tensor, nn

from meristem.space.absent_blocks import leave_out, put_back
from meristem.space.paths import ancestors, split_path


class ModuleTree:
    """Reads and writes modules, parameters and buffers by path; takes blocks out and puts them back."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._absent: dict[str, nn.Module] = {}

    @property
    def absent(self) -> tuple[str, ...]:
        """The paths of the blocks that are absent."""
        return tuple(self._absent)

    def module(self, path: str) -> nn.Module:
        """Return a module, which may be or lie in an absent block."""
        for block in ancestors(path) if self._absent else ():
            if block in self._absent:
                return self._absent[block].get_submodule(path.removeprefix(f"{block}."))
        return self._absent[path] if path in self._absent else self._model.get_submodule(path)

    def tensor(self, name: str) -> Tensor:
        """Return a parameter or buffer that is set."""
        tensor = self.tensor_or_none(name)
        assert tensor is not None
        return tensor

    def tensor_or_none(self, name: str) -> Tensor | None:
        """Return a parameter or buffer, or None where a buffer is registered but not set."""
        path, attribute = split_path(name)
        tensor: Tensor | None = getattr(self.module(path), attribute)
        return tensor

    def buffers(self) -> dict[str, Tensor]:
        """Return all buffers that are set, those of absent blocks included."""
        buffers = dict(self._model.named_buffers())
        for path, module in self._absent.items():
            buffers.update(module.named_buffers(prefix=path))
        return buffers

    def write_buffer(self, name: str, tensor: Tensor | None) -> None:
        """Set a buffer, also one that the module registers only as it runs."""
        path, attribute = split_path(name)
        owner = self.module(path)
        if attribute in owner._buffers:
            owner._buffers[attribute] = tensor
        else:
            owner.register_buffer(attribute, tensor)

    def write(self, name: str, tensor: Tensor) -> None:
        """Set a parameter or buffer."""
        path, attribute = split_path(name)
        setattr(self.module(path), attribute, tensor)

    def leave_out(self, path: str, way: str) -> None:
        """Take a block out; what goes into it passes through from now on."""
        self._absent[path] = leave_out(self._model, path, way)

    def put_back(self, path: str) -> None:
        """Put an absent block back to its place."""
        put_back(self._model, path, self._absent.pop(path))
