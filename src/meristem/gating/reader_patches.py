"""What the layers that read units are given, on held-out data: a few places of their inputs, and their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meristem.distributed.agreement import gathered, is_distributed
from meristem.gating.interfaces import ReaderPatches
from meristem.space.space import Slot, Space
from meristem.surgery.live import Live

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class _Reader:
    """A layer that reads units of a group: which unit, among the live ones, each of its inputs belongs to, or -1."""

    module: nn.Module
    group: str
    units: Tensor


@torch.no_grad()
def reader_patches(
    live: Live, run: Callable[[], object], count: int, rng: np.random.Generator
) -> dict[str, list[ReaderPatches]]:
    """For each group the patches of the convolutions and linear layers that read it, ``count`` at each call of one.

    ``run`` calls the model. A group that no such layer reads has none.
    """
    readers = _readers(live)
    caught: dict[int, list[Tensor]] = {index: [] for index in range(len(readers))}

    def catch(index: int) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, args: Any) -> None:
            caught[index].append(_patches(module, args[0].detach().float(), count, rng))

        return hook

    handles = [reader.module.register_forward_pre_hook(catch(index)) for index, reader in enumerate(readers)]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    found: dict[str, list[ReaderPatches]] = {name: [] for name in live.space.groups if name not in live.space.blocks}
    for index, reader in enumerate(readers):
        if caught[index]:
            weight = reader.module.get_parameter("weight").detach().float()
            weight = weight.view(*weight.shape[:2], -1)
            patches = ReaderPatches(weight, torch.cat(caught[index]), reader.units, live.widths[reader.group])
            found[reader.group].append(patches)
    return found


def patches_of_all_ranks(found: dict[str, list[ReaderPatches]]) -> dict[str, list[ReaderPatches]]:
    """The patches of every rank of a distributed run: each has looked at its own data."""
    if not is_distributed():
        return found
    every = gathered({group: [each.patches.cpu() for each in readers] for group, readers in found.items()})
    return {
        group: [
            replace(reader, patches=torch.cat([ranks[group][at] for ranks in every]).to(reader.patches.device))
            for at, reader in enumerate(readers)
        ]
        for group, readers in found.items()
    }


def groups_without_readers(space: Space, model: nn.Module) -> list[str]:
    """The groups of units that no convolution and no linear layer reads by itself."""
    read = {
        part.group
        for slot in space.slots
        if _can_be_looked_at(slot, model.get_submodule(slot.owner))
        for part in space.unit_parts(space.axes(slot.tensor)[slot.dim])
    }
    return [name for name in space.groups if name not in read and name not in space.blocks]


def _can_be_looked_at(slot: Slot, module: nn.Module) -> bool:
    plain = slot.runner == slot.owner and slot.name == "weight" and slot.dim == 1
    return plain and isinstance(module, (*_CONVOLUTIONS, nn.Linear)) and getattr(module, "groups", 1) == 1


def _readers(live: Live) -> list[_Reader]:
    """All layers that can be looked at, in the order of the model."""
    readers = []
    for slot in live.space.slots:
        module = live.tree.module(slot.owner)
        if not _can_be_looked_at(slot, module) or not module.get_parameter("weight").numel():  # of an absent block
            continue
        for group, units in live.owners(live.space.axes(slot.tensor)[1]):
            places = np.full(len(live.masks[group]), -1)
            places[live.masks[group]] = np.arange(live.widths[group])
            readers.append(_Reader(module, group, torch.from_numpy(np.where(units >= 0, places[units], -1))))
    return readers


def _patches(module: nn.Module, inputs: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """What ``count`` outputs at random places are computed from: [count, inputs, kernel]."""
    if isinstance(module, nn.Linear):
        rows = inputs.flatten(0, -2)
        return rows[torch.from_numpy(rng.integers(len(rows), size=count)).to(rows.device), :, None]
    assert isinstance(module, _CONVOLUTIONS)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    padded = nn.functional.pad(inputs, module._reversed_padding_repeated_twice, mode)
    patches = []
    for _ in range(count):
        where: list[slice | int] = [int(rng.integers(len(padded))), slice(None)]
        for size, kernel, stride, gap in zip(
            padded.shape[2:], module.kernel_size, module.stride, module.dilation, strict=True
        ):
            reach = gap * (kernel - 1) + 1
            start = int(rng.integers((size - reach) // stride + 1)) * stride
            where.append(slice(start, start + reach, gap))
        patches.append(padded[tuple(where)].flatten(1))
    return torch.stack(patches)
