"""Where gates act: at the weights that read a unit, or at the filter that makes it."""

from __future__ import annotations

from meristem.gating.kinds import GatePlacement
from meristem.space.paths import split_path
from meristem.space.space import Role, Slot, Space


def gate_slots(space: Space, placement: GatePlacement) -> tuple[Slot, ...]:
    """The module attributes that gates scale."""
    return space.slots if placement is GatePlacement.READ else _filter_slots(space)


def _filter_slots(space: Space) -> tuple[Slot, ...]:
    """Every weight that makes units, its bias included: the paper's placement.

    A norm behind it undoes the scale, so that the task then sends the gate no gradient.
    """
    # Some modules compute with what their children hold and never call them (out_proj of nn.MultiheadAttention).
    runners = {slot.owner: slot.runner for slot in space.slots}
    slots = []
    for site in space.sites:
        tensor = space.tensors[site.tensor]
        if site.roles != {Role.OUT} or not tensor.is_parameter:
            continue
        for name in tensor.names:
            owner, attribute = split_path(name)
            slots.append(Slot(runners.get(owner, owner), owner, attribute, site.tensor, site.dim))
    return tuple(slots)
