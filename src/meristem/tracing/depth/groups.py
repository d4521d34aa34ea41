"""Blocks that may be absent as groups of the space: each owns all that lies inside it, tensors and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from meristem.space.axis import Axis, Part
from meristem.space.space import DEPTH, Block, Group, Role, Site, Space, Stage, Term
from meristem.tracing.depth.candidates import Candidate, block_of, children_of, is_block


def with_depth(space: Space, found: Sequence[Candidate], model: nn.Module) -> Space:
    """The space with a group of one unit for every block: it owns all that lies inside the block."""
    if not found:
        return space
    names = {candidate.path: f"{candidate.path}:block" for candidate in found}
    groups = {**space.groups, **{name: Group(name, 1, DEPTH, min_units=0) for name in names.values()}}
    sites, seen = [], set()
    for site in space.sites:
        block = block_of(site.tensor, names) if site.dim == 0 else None
        if block is not None:
            seen.add(site.tensor)
            site = replace(site, axis=Axis(site.axis.size, (*site.axis.parts, _owner(names[block], site.axis.size))))
        sites.append(site)
    for name, tensor in space.tensors.items():
        block = block_of(name, names)
        if block is not None and name not in seen and tensor.shape:
            axis = Axis(tensor.shape[0], (_owner(names[block], tensor.shape[0]),))
            sites.append(Site(name, 0, frozenset({Role.ALONG}), axis))
    terms = [_owned_term(term, names) for term in space.terms]
    return replace(space, groups=groups, sites=tuple(sites), terms=tuple(terms), stages=_described(found, names, model))


def _owned_term(term: Term, names: dict[str, str]) -> Term:
    block = block_of(f"{term.module}.", names)
    return term if block is None else replace(term, axes=(*term.axes, Axis(1, (_owner(names[block], 1),))))


def _owner(group: str, size: int) -> Part:
    return Part(group, np.zeros(size, dtype=np.int64))


def _described(found: Sequence[Candidate], names: dict[str, str], model: nn.Module) -> tuple[Stage, ...]:
    stages = dict.fromkeys(candidate.stage for candidate in found)
    described = []
    for stage in stages:
        mine = [candidate.path for candidate in found if candidate.stage == stage]
        fixed = sum(1 for path, _ in children_of(model, stage) if path not in mine and is_block(model, path))
        blocks = [Block(names[each.path], each.path, each.way, each.plain) for each in found if each.stage == stage]
        described.append(Stage(stage, tuple(blocks), fixed))
    return tuple(described)
