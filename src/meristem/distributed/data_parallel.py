"""DistributedDataParallel wrappers that follow a model whose parameters are exchanged.

A wrapper registers its hooks on the parameters that the model has when it is wrapped; its reducer averages the
gradients of those alone. It builds its reducer anew when it is unpickled, from the parameters that the model has then,
and that is how it is renewed here: the wrapper stays the same object, with its hooks and settings.
"""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from meristem.errors import MeristemError

_KEEPS_BUCKETS = ("PowerSGDState", "PostLocalSGDState")  # states of communication hooks, which know bucket for bucket


class Wrappers:
    """The wrappers around a model, and around averaged copies of it."""

    def __init__(self, model: nn.Module) -> None:
        # What each wrapper averages the gradients of. A copy of a wrapper has its hooks too, but is not among these.
        self._parameters: WeakKeyDictionary[nn.Module, list[nn.Parameter]] = WeakKeyDictionary()
        self.add(model)

    def add(self, model: nn.Module, *, is_stale: bool = False) -> None:
        """Let the wrappers around ``model`` follow it; refuses those that cannot.

        ``is_stale``: the model may have changed since they were made.
        """
        parameters = self._parameters
        wrappers = _wrappers_around(model)
        for wrapper in wrappers:
            _check(wrapper)
        for wrapper in wrappers:
            parameters[wrapper] = [] if is_stale else list(wrapper.module.parameters())
            wrapper.register_forward_pre_hook(lambda module, args: _refuse_when_stale(module, parameters.get(module)))

    def renew(self) -> None:
        """Let every wrapper average the gradients of the parameters that its model has now; without communication."""
        for wrapper, before in self._parameters.items():
            now = list(wrapper.parameters())
            if not _same(before, now):
                assert isinstance(wrapper, DistributedDataParallel)
                _rebuild(wrapper)
                self._parameters[wrapper] = now


def is_wrapper_around(given: nn.Module, model: nn.Module) -> bool:
    """Whether ``given`` is a wrapper of a module that ``model`` is, or is a part of."""
    return isinstance(given, DistributedDataParallel) and any(module is model for module in given.modules())


def _wrappers_around(model: nn.Module) -> list[DistributedDataParallel]:
    """From the outermost inwards, also those inside torch.compile's wrapper or an AveragedModel."""
    found = []
    inner: Any = model
    while isinstance(inner, nn.Module):
        if isinstance(inner, DistributedDataParallel):
            found.append(inner)
        inner = inner._modules.get("_orig_mod", inner._modules.get("module"))
    return found


def _check(wrapper: DistributedDataParallel) -> None:
    """Refuse what a new reducer would not have, or would do with other processes than the grower asks."""
    world = torch.distributed.distributed_c10d._get_default_group()
    if wrapper.process_group != world:
        raise MeristemError(
            "this DistributedDataParallel wrapper has a process_group of its own, but what is learned about units is "
            "averaged over all processes: leave process_group out"
        )
    if wrapper.mixed_precision is not None:
        raise MeristemError(
            "this DistributedDataParallel wrapper keeps low-precision copies of parameters, which do not follow when "
            "these are resized: leave mixed_precision out and use torch.autocast"
        )
    if wrapper._delay_all_reduce_params:
        raise MeristemError(
            "this DistributedDataParallel wrapper delays the averaging of certain parameters, which do not stay: leave "
            "delay_all_reduce_named_params out"
        )
    for _, state in wrapper._comm_hooks:
        if type(state).__name__ in _KEEPS_BUCKETS:
            raise MeristemError(
                f"the communication hook of this wrapper keeps a {type(state).__name__} for buckets of gradients, "
                f"whose sizes change with the network: use a hook without such a state, e.g. fp16_compress_hook"
            )


def _rebuild(wrapper: DistributedDataParallel) -> None:
    """Make the reducer anew, as unpickling does, and give it the communication hooks of the one before."""
    state = copy.copy(wrapper.__dict__)
    for unpicklable in ("process_group", "reducer", "logger"):
        state.pop(unpicklable)
    hooks, state["_comm_hooks"] = state["_comm_hooks"], []
    state["_module_parameters"] = [
        each for name, each in wrapper.module.named_parameters() if name not in wrapper.parameters_to_ignore
    ]
    if wrapper.static_graph:  # its first pass comes again: without this the new reducer would average nothing
        state["_static_graph_delay_allreduce_enqueued"] = False
    del wrapper.reducer, wrapper.logger  # first: its hooks are taken off the parameters that stay
    wrapper.__setstate__(state)  # type: ignore[no-untyped-call]
    for hook, its_state in hooks:
        wrapper.register_comm_hook(its_state, hook)


def _refuse_when_stale(wrapper: nn.Module, when_wrapped: list[nn.Parameter] | None) -> None:
    if when_wrapped is not None and not _same(when_wrapped, list(wrapper.parameters())):
        raise MeristemError(
            "this DistributedDataParallel wrapper averages the gradients of parameters that the model no longer has: "
            "the model was changed behind the grower's back; wrap it again: model = DistributedDataParallel(...)"
        )


def _same(when_wrapped: list[nn.Parameter], now: list[nn.Parameter]) -> bool:
    return len(when_wrapped) == len(now) and all(one is two for one, two in zip(when_wrapped, now, strict=True))
