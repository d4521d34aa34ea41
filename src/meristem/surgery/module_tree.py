"""The modules of a model by their paths in the full one, whether they are in it at the moment or not.

A block that is absent is kept here, emptied by the resizing of its tensors, so that it comes back as the same module.
"""

from __future__ import annotations

from torch import Tensor, nn

from meristem.space.absent_blocks import leave_out, put_back
from meristem.space.paths import ancestors, split_path


class ModuleTree:
    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._absent: dict[str, nn.Module] = {}

    @property
    def absent(self) -> tuple[str, ...]:
        return tuple(self._absent)

    def module(self, path: str) -> nn.Module:
        for block in ancestors(path) if self._absent else ():
            if block in self._absent:
                return self._absent[block].get_submodule(path.removeprefix(f"{block}."))
        return self._absent[path] if path in self._absent else self._model.get_submodule(path)

    def tensor(self, name: str) -> Tensor:
        found = self.held(name)
        assert found is not None
        return found

    def held(self, name: str) -> Tensor | None:
        """A tensor of the model, or None where a buffer is registered but not set."""
        path, leaf = split_path(name)
        found: Tensor | None = getattr(self.module(path), leaf)
        return found

    def buffers(self) -> dict[str, Tensor]:
        """All buffers that are set, those of absent blocks included."""
        found = dict(self._model.named_buffers())
        for path, module in self._absent.items():
            found.update(module.named_buffers(prefix=path))
        return found

    def write_buffer(self, name: str, tensor: Tensor | None) -> None:
        """Set a buffer, also one that the module makes only as it runs."""
        path, leaf = split_path(name)
        owner = self.module(path)
        if leaf in owner._buffers:
            owner._buffers[leaf] = tensor
        else:
            owner.register_buffer(leaf, tensor)

    def write(self, name: str, tensor: Tensor) -> None:
        path, leaf = split_path(name)
        setattr(self.module(path), leaf, tensor)

    def leave_out(self, path: str, way: str) -> None:
        """Take a block out; what goes into it passes through from now on."""
        self._absent[path] = leave_out(self._model, path, way)

    def put_back(self, path: str) -> None:
        put_back(self._model, path, self._absent.pop(path))
