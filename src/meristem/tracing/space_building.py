"""The frozen space of a model, from its units and what was observed about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import nn

from meristem.space.arrays import IntArray
from meristem.space.axis import Axis
from meristem.space.paths import layer_path, split_path
from meristem.space.space import Attribute, Pinned, Role, Site, Slot, Space, State, TensorSpec, Term
from meristem.tracing.grouping import Grouping
from meristem.tracing.model_copy import named_tensors
from meristem.tracing.observations import Observations, SizeKey
from meristem.tracing.ops.context import UNKNOWN
from meristem.tracing.resolve import Resolution
from meristem.tracing.unreached import unreached_layers


def build_space(grouping: Grouping, model: nn.Module, sizes: Mapping[SizeKey, Axis], notes: Sequence[str]) -> Space:
    """The space of ``model``, without depth; ``sizes`` are the axes that remembered sizes follow."""
    observations = grouping.observations
    tensors, sites = _tensors(model), _sites(grouping)
    return Space(
        groups={group.name: group for group in grouping.groups},
        pinned=(*_pinned(grouping), *_unreached(observations, model)),
        tensors=tensors,
        sites=tuple(sites),
        slots=tuple(_slots(observations, sites, tensors)),
        attributes=tuple(Attribute(*key, axis=axis) for key, axis in sizes.items() if axis.parts),
        terms=tuple(_terms(grouping)),
        notes=tuple(notes),
        states=tuple(State(path, tuple(map(grouping.axis, dims))) for path, dims in observations.states.items()),
    )


def _sites(grouping: Grouping) -> list[Site]:
    """The dimensions of the model's tensors that have units."""
    sites = []
    for (name, dim), owned in grouping.observations.owned.items():
        axis = grouping.axis(owned)
        if axis.parts:
            roles = frozenset(grouping.observations.roles.get((name, dim), {Role.ALONG}))
            sites.append(Site(name, dim, roles - {Role.ALONG} or frozenset({Role.ALONG}), axis))
    return sites


def _terms(grouping: Grouping) -> list[Term]:
    """The cost terms; dimensions that turned out to have no units go into the factor."""
    terms = []
    for term in grouping.observations.terms:
        axes = [grouping.axis(dim) for dim in term.dims]
        fixed = int(np.prod([axis.size for axis in axes if not axis.parts]))
        terms.append(Term(term.factor * fixed, tuple(axis for axis in axes if axis.parts), term.path))
    return terms


def _tensors(model: nn.Module) -> dict[str, TensorSpec]:
    aliases: dict[int, list[str]] = {}
    for name, tensor in [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]:
        aliases.setdefault(id(tensor), []).append(name)
    parameters = {id(parameter) for parameter in model.parameters()}
    return {
        name: TensorSpec(name, tuple(tensor.shape), id(tensor) in parameters, tuple(aliases[id(tensor)]))
        for name, tensor in named_tensors(model)
    }


def _slots(observations: Observations, sites: Sequence[Site], tensors: Mapping[str, TensorSpec]) -> list[Slot]:
    """The attributes through which units are read, where scaling them scales nothing else."""
    slots = []
    for site in sites:
        readers = observations.readers.get((site.tensor, site.dim), set())
        if not tensors[site.tensor].is_parameter:  # a buffer that is multiplied with, such as one of a spectral norm
            continue
        read_only = Role.IN in site.roles and Role.OUT not in site.roles
        if not read_only or observations.users.get(site.tensor, set()) - readers:
            continue
        places = [split_path(name) for name in tensors[site.tensor].names]
        for runner in sorted(readers):
            owner, attribute = next((place for place in places if place[0] == runner), places[0])
            slots.append(Slot(runner, owner, attribute, site.tensor, site.dim))
    return slots + _slots_of_fixed_reads(observations, sites, tensors)


def _slots_of_fixed_reads(
    observations: Observations, sites: Sequence[Site], tensors: Mapping[str, TensorSpec]
) -> list[Slot]:
    """For units that only buffers read: scale and shift of the layer that passes them along, if there is one such.

    A buffer is not trained, so what is read through it can neither be scaled nor start at zero there.
    """
    reads, passes = dict[str, list[Site]](), dict[str, list[Site]]()
    for site in sites:
        kinds = {Role.IN: reads, Role.ALONG: passes if tensors[site.tensor].is_parameter else {}}
        for role in site.roles & set(kinds):
            for group in site.axis.groups:
                kinds[role].setdefault(group, []).append(site)
    slots = []
    for group, read in reads.items():
        layers = {layer_path(site.tensor) for site in passes.get(group, ())}
        if len(layers) != 1 or any(tensors[site.tensor].is_parameter for site in read):
            continue
        if all(observations.users.get(site.tensor, set()) == layers for site in passes[group]):
            places = [(*split_path(site.tensor), site) for site in passes[group]]
            slots += [Slot(owner, owner, name, site.tensor, site.dim) for owner, name, site in places]
    return slots


def _pinned(grouping: Grouping) -> tuple[Pinned, ...]:
    """Every place that makes units which may not change, with the reason."""
    resolution, pinned = grouping.resolution, []
    for (name, dim), owned in grouping.observations.owned.items():
        roles = grouping.observations.roles.get((name, dim), set())
        if owned.ids is None or (roles and Role.OUT not in roles):
            continue
        ids = owned.ids[owned.ids > 0]
        classes = resolution.root[ids]
        free = np.zeros(len(classes), dtype=np.bool_)
        for column in resolution.leaves(ids):
            free |= column > 0
        if not free.all():
            fixed = classes[~free]
            reason = next((resolution.reasons[n] for n in _reason_numbers(resolution, fixed) if n), "it cannot change")
            if not roles and (dim or not reason.startswith(UNKNOWN)):
                continue  # what passes by is told of where it is made, unless nothing is known of that
            pinned.append(Pinned(layer_path(name), len(np.unique(fixed)), reason))
    return tuple(pinned)


def _unreached(observations: Observations, model: nn.Module) -> list[Pinned]:
    """Layers that the example inputs never reach."""
    reason = "the example inputs never reach it"
    return [Pinned(path, size, reason) for path, size in unreached_layers(observations, model).items()]


def _reason_numbers(resolution: Resolution, classes: IntArray) -> list[int]:
    """The numbers of the reasons for which classes, or their factors, are pinned; 0 is none."""
    numbers = [*np.unique(resolution.pinned[classes]).tolist()]
    for factor in (resolution.row[classes], resolution.column[classes]):
        numbers += np.unique(resolution.pinned[factor[factor > 0]]).tolist()
    return numbers
