"""Fully sharded models (FSDP2): made whole for surgery, and sharded again by the user's own function.

``fully_shard`` changes a model in place: the classes of its modules, hooks on them, and every parameter, of which a
rank keeps its rows. Nothing of torch undoes it. So it is noted what the modules were, and taken back here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from meristem.distributed.shards import is_cut_by_rows, is_sharded, like, whole
from meristem.errors import MeristemError
from meristem.rules import StateKind
from meristem.surgery.optimizer import Optimizers

_PLACED_BY = "torch.distributed."  # the modules whose hooks are taken away again
_FACTORED = (StateKind.ROW_MOMENT, StateKind.COLUMN_MOMENT)


@dataclass(frozen=True)
class _Plain:
    """What a module was before it was sharded."""

    module: nn.Module
    kind: type[nn.Module]
    attributes: frozenset[str]


class Sharding:
    """Shards a model by a function of the user's, and undoes it. All ranks call both at the same time."""

    def __init__(self, model: nn.Module, shard: Callable[[nn.Module], Any]) -> None:
        self._model, self._shard = model, shard
        self._plain: list[_Plain] = []

    @property
    def is_on(self) -> bool:
        return bool(self._plain)

    def shard(self, optimizers: Optimizers) -> None:
        """Leave every rank its rows of every parameter, and of the state that an optimizer keeps of it."""
        assert not self.is_on
        before = _places(self._model)
        plain = [_Plain(each, type(each), frozenset(each.__dict__)) for each in self._model.modules()]
        self._shard(self._model)
        self._plain = plain
        after = dict(zip(before, (_parameter(place) for place in before), strict=True))
        for place, old in before.items():
            _check_shard(place, old, after[place])
        exchanged = {id(old): after[place] for place, old in before.items()}
        for place, old in before.items():
            if old.grad is not None:
                after[place].grad = like(old.grad, after[place])
        optimizers.exchange(exchanged, lambda old, new, value: like(value, new) if value.shape == old.shape else value)

    def unshard(self, optimizers: Optimizers) -> None:
        """Give every rank the whole of every parameter and of its state."""
        for module in self._model.modules():
            if isinstance(module, _sharded_class()):
                module.reshard()  # what an evaluation has left whole
        before = _places(self._model)
        made: dict[int, nn.Parameter] = {}
        for old in before.values():
            if id(old) not in made:
                made[id(old)] = nn.Parameter(whole(old.detach()), requires_grad=old.requires_grad)
                made[id(old)].grad = None if old.grad is None else whole(old.grad)
        self._undo()
        for (module, name), old in before.items():
            setattr(module, name, made[id(old)])  # not past the module: recurrent ones keep a list of their weights
        optimizers.exchange(made, lambda old, new, value: whole(value))

    def _undo(self) -> None:
        """Take back what ``fully_shard`` has done to the modules."""
        from torch.distributed._composable_state import _module_state_mapping

        for plain in self._plain:
            module = plain.module
            _take_hooks(module)
            module.__class__ = plain.kind
            for name in set(module.__dict__) - plain.attributes:
                if name.startswith(("_fsdp", "_is_fsdp", "__composable")):
                    del module.__dict__[name]
            _module_state_mapping.pop(module, None)
        self._plain = []


def check_can_shard(optimizers: Optimizers) -> None:
    """Refuse optimizers that look at more than single weights."""
    for optimizer, kinds in zip(optimizers.all, optimizers.kinds, strict=True):
        if any(kind in _FACTORED for kind in kinds.values()) or type(optimizer).__name__ == "Muon":
            raise MeristemError(
                f"{type(optimizer).__name__} looks at whole rows or matrices, of which a rank of a sharded model has "
                f"parts; use an optimizer that goes element by element, e.g. AdamW, or DistributedDataParallel"
            )


Place = tuple[nn.Module, str]


def _places(model: nn.Module) -> dict[Place, nn.Parameter]:
    """Every attribute of a module that holds a parameter; one that is tied has several."""
    return {
        (module, name): parameter
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None
    }


def _parameter(place: Place) -> nn.Parameter:
    module, name = place
    parameter = module._parameters[name]
    assert parameter is not None
    return parameter


def _check_shard(place: Place, old: Tensor, new: Tensor) -> None:
    """Refuse what shard() has made of a parameter, if its units could not be found in it again."""
    if new.requires_grad and not is_sharded(new):
        raise MeristemError(
            f"shard() has left a parameter of {type(place[0]).__name__} whole ({place[1]}), so nobody averages its "
            f"gradients: call fully_shard(model) on the whole model last, without ignored_params"
        )
    if is_sharded(new) and not is_cut_by_rows(new):
        raise MeristemError(
            f"shard() has not cut {place[1]} of {type(place[0]).__name__} into rows over all ranks: call fully_shard "
            f"without shard_placement_fn and with a mesh of one dimension, or with none"
        )


def _take_hooks(module: nn.Module) -> None:
    """Remove the hooks that torch's own engine has put on a module; those of others stay."""
    hook_dicts = {name: value for name, value in module.__dict__.items() if "hooks" in name and isinstance(value, dict)}
    gone = {
        key
        for name, hooks in hook_dicts.items()
        for key, hook in hooks.items()
        if str(getattr(getattr(hook, "hook", hook), "__module__", "")).startswith(_PLACED_BY)
    }
    for hooks in hook_dicts.values():
        for key in gone & set(hooks):
            del hooks[key]


def _sharded_class() -> Any:
    from torch.distributed.fsdp import FSDPModule  # not with the library: most runs are of one process

    return FSDPModule
