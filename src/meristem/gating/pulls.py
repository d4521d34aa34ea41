"""The pull of the task on every live gate, read from the weights and their gradients.

A reader's weight is used as `w * g`. So the gradient of the loss with respect to g is the sum of `w * dL/d(w g)` over
what it scales, and since `dL/dw = g * dL/d(w g)`, it is `sum(w * w.grad) / g`. No gate needs to be in the forward pass
for that, no graph is kept, and whatever the user does to gradients (accumulation, clipping, unscaling) is respected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from meristem.distributed.agreement import sum_over_ranks
from meristem.distributed.shards import first_row_here, is_sharded, part_here
from meristem.gating.block_gates import BlockGates
from meristem.space.space import Slot
from meristem.surgery.live import Live


class Pulls:
    """Calling it gives `g * dL/dg` of all live units in one tensor, groups in the order of the space."""

    def __init__(self, live: Live, slots: Sequence[Slot] | None = None, blocks: BlockGates | None = None) -> None:
        self.live, self._blocks = live, blocks
        self._slots = live.space.slots if slots is None else slots
        self._version = -1
        self._reads: list[tuple[nn.Parameter, int, list[tuple[Tensor, Tensor | None]]]] = []
        self._size = 0
        self._block_places: dict[str, int] = {}

    def __call__(self) -> Tensor:
        if self._version != self.live.version:
            self._index()
        total: Tensor | None = None
        in_parts = False
        for weight, dim, parts in self._reads:
            if weight.grad is None:
                continue
            if total is None:
                total = torch.zeros(self._size, device=weight.device, dtype=torch.float32)
            along = _along(weight.detach(), weight.grad, dim).float()
            in_parts = in_parts or is_sharded(weight)
            for place, at in parts:
                total.index_add_(0, place, (along if at is None else along[at]).to(total.device))
        total = torch.zeros(self._size) if total is None else total
        total = sum_over_ranks(total) if in_parts else total
        for group, pull in self._blocks.take_pulls().items() if self._blocks is not None else ():
            if group in self._block_places:
                total[self._block_places[group]] = pull.to(total.device)
        return total

    def _index(self) -> None:
        live, space = self.live, self.live.space
        index, active = live.active_index, live.active
        self._size, self._version, self._reads = index.size, live.version, []
        self._block_places = {group: index.offset(group) for group in space.blocks if active[group][0]}
        device = next((parameter.device for parameter in live.model.parameters()), torch.device("cpu"))
        for tensor, dim in dict.fromkeys((slot.tensor, slot.dim) for slot in self._slots):
            weight = live.tree.tensor(tensor)
            if not weight.numel():  # of an absent block
                continue
            assert isinstance(weight, nn.Parameter)
            parts: list[tuple[Tensor, Tensor | None]] = []
            for group, units in live.owners(space.axes(tensor)[dim]):
                owned = np.flatnonzero(units >= 0)
                place = torch.from_numpy(index.places(group)[units[owned]]).to(device)
                at = None if len(owned) == len(units) else torch.from_numpy(owned).to(weight.device)
                parts.append((place, at))
            self._reads.append((weight, dim, parts))


def _along(weight: Tensor, gradient: Tensor, dim: int) -> Tensor:
    """The sum of weight * gradient over all dimensions but ``dim``; of a sharded weight over the rows that are here."""
    product = part_here(weight) * part_here(gradient.to_dense() if gradient.is_sparse else gradient)
    rest = [other for other in range(weight.dim()) if other != dim]
    along = product.sum(rest) if rest else product
    if dim or not is_sharded(weight):
        return along
    first = first_row_here(weight)
    return nn.functional.pad(along, (first, weight.shape[0] - first - len(along)))
