"""The modules of a model by their paths in the full one, whether they are in it at the moment or not.

A block that is absent is kept here, emptied by the resizing of its tensors, so that it comes back as the same module.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from meristem.init import LayerPart
from meristem.space.blocks import leave_out, put_back
from meristem.space.space import Space

_MIXING = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)  # layers whose outputs may just be their inputs


class Tree:
    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._absent: dict[str, nn.Module] = {}

    @property
    def absent(self) -> tuple[str, ...]:
        return tuple(self._absent)

    def module(self, path: str) -> nn.Module:
        end = path.find(".") if self._absent else -1
        while end >= 0:
            if path[:end] in self._absent:
                return self._absent[path[:end]].get_submodule(path[end + 1 :])
            end = path.find(".", end + 1)
        return self._absent[path] if path in self._absent else self._model.get_submodule(path)

    def tensor(self, name: str) -> Tensor:
        found = self.held(name)
        assert found is not None
        return found

    def held(self, name: str) -> Tensor | None:
        """A tensor of the model, or None where a buffer is registered but not set."""
        path, _, leaf = name.rpartition(".")
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
        path, _, leaf = name.rpartition(".")
        owner = self.module(path)
        if leaf in owner._buffers:
            owner._buffers[leaf] = tensor
        else:
            owner.register_buffer(leaf, tensor)

    def write(self, name: str, tensor: Tensor) -> None:
        path, _, leaf = name.rpartition(".")
        setattr(self.module(path), leaf, tensor)

    def leave_out(self, path: str, way: str) -> None:
        """Take a block out; what goes into it passes through from now on."""
        self._absent[path] = leave_out(self._model, path, way)

    def put_back(self, path: str) -> None:
        put_back(self._model, path, self._absent.pop(path))


def plain_layers(tree: Tree, space: Space) -> dict[str, tuple[str, LayerPart]]:
    """The tensors of layers in blocks without a shortcut, with the group of the block and what they are to a layer."""
    found = {}
    for group, block in space.blocks.items():
        inside = tree.module(block.path).named_modules(prefix=block.path) if block.plain else ()
        for path, module in inside:
            if isinstance(module, _BatchNorm):
                weight, bias = LayerPart.SCALE, LayerPart.SHIFT
            elif isinstance(module, _MIXING) and getattr(module, "groups", 1) == 1:
                weight, bias = LayerPart.WEIGHT, LayerPart.BIAS
            else:
                continue
            found.update({f"{path}.weight": (group, weight), f"{path}.bias": (group, bias)})
    return found


def last_norms(tree: Tree, space: Space) -> dict[str, str]:
    """The scale and the shift of the last batch norm of every block, if it has one, with the group of the block."""
    found = {}
    for group, block in space.blocks.items():
        inside = tree.module(block.path).named_modules(prefix=block.path)
        norms = [path for path, module in inside if isinstance(module, _BatchNorm) and module.affine]
        found.update({f"{path}.{name}": group for path in norms[-1:] for name in ("weight", "bias")})
    return found
