"""Models of which it is known beforehand that they cannot be read, each with what to do instead."""

from __future__ import annotations

import torch
from torch import nn

from meristem.distributed.shards import is_sharded
from meristem.errors import TraceError


def check_readable(model: nn.Module) -> None:
    """Refuse what is no plain model: a scripted one, and one whose weights are spread over the ranks."""
    if not isinstance(model, nn.Module):
        raise TraceError(f"trace needs an nn.Module, got {type(model).__name__}; pass the model itself")
    if isinstance(model, torch.jit.ScriptModule):
        raise TraceError("a ScriptModule cannot be resized; trace the nn.Module it was made from")
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise TraceError(f"{path} is a ScriptModule, which cannot be resized; use the nn.Module it was made from")
    check_whole(model)


def check_whole(model: nn.Module) -> None:
    """Refuse a model that FSDP has wrapped or sharded: there is no place in it that has all units of a layer."""
    spread = [path or "the model" for path, module in model.named_modules() if _is_wrapper(module)]
    spread += [name for name, parameter in model.named_parameters() if is_sharded(parameter)]
    if spread:
        raise TraceError(
            f"{spread[0]} is sharded already, so its units cannot be resized: leave fully_shard (of FSDP2) to the "
            f"grower, Grower(..., shard=a function that calls fully_shard on the model)"
        )


def _is_wrapper(module: nn.Module) -> bool:
    return type(module).__name__ == "FullyShardedDataParallel"
