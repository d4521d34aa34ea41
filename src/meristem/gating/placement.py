"""Where a unit's gate multiplies: at the weights that read it, or at those that make it."""

from __future__ import annotations

from meristem.space.space import Role, Slot, Space


def reading(space: Space) -> tuple[Slot, ...]:
    """Every weight that reads units: the default. Right with and without norms, and exact to fold at export."""
    return space.slots


def making(space: Space) -> tuple[Slot, ...]:
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
            owner, _, leaf = name.rpartition(".")
            slots.append(Slot(runners.get(owner, owner), owner, leaf, site.tensor, site.dim))
    return tuple(slots)
