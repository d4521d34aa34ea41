"""Blocks that may be absent as groups of the space: each owns all that lies inside it, tensors and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from meristem.space.axis import Axis, Part
from meristem.space.space import DEPTH, Block, Group, Role, Site, Space, Stage, Term
from meristem.tracing.depth.candidates import BlockCandidate
from meristem.tracing.depth.stages import block_around, children_of, is_block


def with_depth(space: Space, blocks: Sequence[BlockCandidate], model: nn.Module) -> Space:
    """The space with a group of one unit for every block: it owns all that lies inside the block."""
    if not blocks:
        return space
    names = {block.path: f"{block.path}:block" for block in blocks}
    groups = {**space.groups, **{name: Group(name, 1, DEPTH, min_units=0) for name in names.values()}}
    terms = tuple(_owned_term(term, names) for term in space.terms)
    return replace(space, groups=groups, sites=_sites(space, names), terms=terms, stages=_stages(blocks, names, model))


def _sites(space: Space, names: Mapping[str, str]) -> tuple[Site, ...]:
    """The sites of a space, where blocks own the first dimension of every tensor inside; ``names`` are their groups."""
    sites, owned = [], set()
    for site in space.sites:
        block = block_around(site.tensor, names) if site.dim == 0 else None
        if block is not None:
            owned.add(site.tensor)
            site = replace(site, axis=Axis(site.axis.size, (*site.axis.parts, _owner(names[block], site.axis.size))))
        sites.append(site)
    for name, tensor in space.tensors.items():
        block = block_around(name, names)
        if block is not None and name not in owned and tensor.shape:
            axis = Axis(tensor.shape[0], (_owner(names[block], tensor.shape[0]),))
            sites.append(Site(name, 0, frozenset({Role.ALONG}), axis))
    return tuple(sites)


def _owned_term(term: Term, names: Mapping[str, str]) -> Term:
    block = term.module if term.module in names else block_around(term.module, names)
    return term if block is None else replace(term, axes=(*term.axes, Axis(1, (_owner(names[block], 1),))))


def _owner(group: str, size: int) -> Part:
    return Part(group, np.zeros(size, dtype=np.int64))


def _stages(blocks: Sequence[BlockCandidate], names: Mapping[str, str], model: nn.Module) -> tuple[Stage, ...]:
    """The stages of the blocks, each with the number of its blocks that are never absent."""
    stages = []
    for path in dict.fromkeys(block.stage for block in blocks):
        mine = [block for block in blocks if block.stage == path]
        free = {block.path for block in mine}
        fixed = sum(1 for child in children_of(model, path) if child not in free and is_block(model, child))
        described = tuple(Block(names[block.path], block.path, block.way, block.plain) for block in mine)
        stages.append(Stage(path, described, fixed))
    return tuple(stages)
