"""Take a block out of a model and put it back; in its place is an ``nn.Identity``, or nothing.

A block that is called with one tensor and returns one is replaced, so that code which counts or indexes blocks goes
on working. One that is called with more (a mask, say) or returns more is dropped from its list; the others keep their
names.
"""

from __future__ import annotations

from torch import nn

from meristem.space.paths import split_path

REPLACED, DROPPED = "replaced", "dropped"


def leave_out(model: nn.Module, path: str, way: str) -> nn.Module:
    """Take a block out and return it; what goes into it passes through from now on."""
    parent, name = _place(model, path)
    block = parent.get_submodule(name)
    if way == DROPPED:
        del parent._modules[name]
    else:
        parent._modules[name] = nn.Identity().train(block.training)
    return block


def put_back(model: nn.Module, path: str, block: nn.Module) -> None:
    """Put a block back to its place, in the mode of its surroundings; if it has that mode, its parts keep theirs."""
    parent, name = _place(model, path)
    if block.training != parent.training:
        block.train(parent.training)
    dropped = name not in parent._modules
    parent._modules[name] = block
    if dropped:  # lists are in the order of their numbers
        ordered = sorted(parent._modules.items(), key=lambda item: int(item[0]))
        parent._modules.clear()
        parent._modules.update(ordered)


def can_drop(model: nn.Module, path: str) -> bool:
    """Tell whether the block lies in a list that can be shortened."""
    parent, _ = _place(model, path)
    return isinstance(parent, (nn.Sequential, nn.ModuleList)) and all(name.isdigit() for name in parent._modules)


def _place(model: nn.Module, path: str) -> tuple[nn.Module, str]:
    parent, name = split_path(path)
    return model.get_submodule(parent), name
