"""The weights of every unit: their norms, a decay towards zero, and small ones set to zero.

The weights of a unit are all that touch it, where it is made, passed along and read: every position that it owns in the
parameters of two or more dimensions, and in those it is read by. Biases and the vectors of norms are not among them. A
weight between two units belongs to both; one that a unit owns twice, of a recurrent cell say, counts once. `WeightsOf`
names parts of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from meristem.gating.interfaces import WeightsOf
from meristem.space.arrays import BoolArray, FloatArray, IntArray
from meristem.space.paths import split_path
from meristem.space.space import Role, Site, Space
from meristem.surgery.live import Live


@dataclass(frozen=True, eq=False)
class _Share:
    """Positions of a weight with the places of their units in one flat list of all units that take part.

    ``at`` are indices along ``dims``. A share of one dimension has all that a unit owns there. What a unit owns along
    two is in the shares of both; that of the pair has it with the ``sign`` -1, and so on: inclusion and exclusion.
    """

    dims: tuple[int, ...]
    at: tuple[Tensor, ...]
    place: Tensor
    sign: int

    def front(self, values: Tensor) -> Tensor:
        """The same numbers with ``dims`` first."""
        return values.permute(*self.dims, *(dim for dim in range(values.dim()) if dim not in self.dims))


@dataclass(frozen=True, eq=False)
class _Weight:
    values: nn.Parameter
    single: dict[int, list[_Share]]  # by dimension
    several: list[_Share]


class UnitWeights:
    """The weights of the live units of a model, or some of them."""

    def __init__(self, live: Live, of: WeightsOf = WeightsOf.UNIT) -> None:
        self._live, self._dims = live, _DIMS[of](live.space)
        self._version, self._size = -1, 0
        self._places: dict[str, IntArray] = {}  # of the units of each group that has weights
        self._weights: list[_Weight] = []

    @torch.no_grad()
    def norms(self, p: float) -> dict[str, FloatArray]:
        """The p-norm of each unit's weights: 0 for units that are not live, infinite where there are no weights."""
        sums = self.power_sums(p)
        flat = (sums.sqrt() if p == 2 else sums ** (1 / p)).cpu().double().numpy()
        norms = {name: np.where(mask, np.inf, 0.0) for name, mask in self._live.masks.items()}
        for name, places in self._places.items():
            live = norms[name] > 0
            norms[name][live] = flat[places[live]]
        return norms

    @torch.no_grad()
    def power_sums(self, p: float) -> Tensor:
        """The sum of |w|^p over each unit's weights, in one flat list."""
        self._refresh()
        dtype = next((weight.values.dtype for weight in self._weights), torch.float32)
        total = torch.zeros(self._size, device=self._device, dtype=torch.promote_types(dtype, torch.float32))
        for weight in self._weights:
            values = weight.values.detach().to(total.dtype)
            powers = values.square() if p == 2 else values.abs() ** p
            for dim, shares in weight.single.items():
                rest = [other for other in range(powers.dim()) if other != dim]
                along = powers.sum(rest) if rest else powers
                for share in shares:
                    _add(total, share, along[share.at[0]])
            for share in weight.several:
                picked = share.front(powers)[share.at].reshape(len(share.place), -1)
                _add(total, share, picked.sum(1))
        return total

    def by_group(self, values: Mapping[str, float]) -> Tensor:
        """The number of its group for every unit, in one flat list."""
        self._refresh()
        flat = np.zeros(self._size, dtype=np.float32)
        for name, places in self._places.items():
            flat[places[self._live.active[name]]] = values[name]
        return torch.from_numpy(flat).to(self._device)

    @torch.no_grad()
    def add_decay(self, factors: Tensor) -> None:
        """Add factor * w to the gradient of every weight, for each unit that it belongs to."""
        self._refresh()
        for weight in self._weights:
            values = weight.values
            if not values.requires_grad:
                continue
            if values.grad is None:
                values.grad = torch.zeros_like(values)
            own = factors.to(values.device, values.dtype)
            for dim, shares in weight.single.items():
                factor = own.new_zeros(values.shape[dim])
                for share in shares:
                    factor.index_add_(0, share.at[0], own[share.place], alpha=share.sign)
                values.grad.addcmul_(values, factor.view([-1 if at == dim else 1 for at in range(values.dim())]))
            for share in weight.several:
                picked = share.front(values)[share.at]
                slope = own[share.place].view(-1, *[1] * (picked.dim() - 1))
                share.front(values.grad).index_put_(share.at, share.sign * slope * picked, accumulate=True)

    @torch.no_grad()
    def zero_units(self, units: Mapping[str, BoolArray]) -> None:
        """Set all weights of these units to zero; the masks are over all units of a group, live or not."""
        self._refresh()
        chosen = torch.zeros(self._size, dtype=torch.bool)
        for name, places in self._places.items():
            chosen[torch.from_numpy(places[units[name] & self._live.active[name]])] = True
        for weight in self._weights:
            for dim, shares in weight.single.items():
                for share in shares:
                    at = share.at[0][chosen[share.place.cpu()].to(share.at[0].device)]
                    weight.values.index_fill_(dim, at, 0.0)

    @torch.no_grad()
    def zero_below(self, threshold: float) -> None:
        """Set weights of at most the threshold to zero."""
        self._refresh()
        for weight in self._weights:
            if weight.values.requires_grad:
                torch.ops.aten.hardshrink.out(weight.values, threshold, out=weight.values)

    def _refresh(self) -> None:
        """Find out who owns which weights, if the network has changed since the last time."""
        live, index = self._live, self._live.active_index
        if self._version == live.version:
            return
        self._weights, self._places, self._version, self._size = [], {}, live.version, index.size
        for name, dims in self._dims.items():
            values = live.tree.tensor(name)
            if not values.numel():  # of an absent block
                continue
            assert isinstance(values, nn.Parameter)
            single: dict[int, list[_Share]] = {}
            several: list[_Share] = []
            for group, owners in _owners(live, name, dims).items():
                self._places[group] = index.places(group)
                for share in _shares(owners, self._places[group], values.device):
                    (single.setdefault(share.dims[0], []) if len(share.dims) == 1 else several).append(share)
            self._weights.append(_Weight(values, single, several))

    @property
    def _device(self) -> torch.device:
        return next((weight.values.device for weight in self._weights), torch.device("cpu"))


def _add(total: Tensor, share: _Share, values: Tensor) -> None:
    total.index_add_(0, share.place.to(total.device), values.to(total.device), alpha=share.sign)


Dims = dict[str, set[int]]  # for each tensor the dimensions in which units count


def _all_weights(space: Space) -> Dims:
    """Parameters of two or more dimensions, and those that read units."""
    return {site.tensor: set(range(len(space.tensors[site.tensor].shape))) for site in _weight_sites(space)}


def _filters(space: Space) -> Dims:
    """Parameters of two or more dimensions where they make units."""
    dims: Dims = {}
    for site in _weight_sites(space):
        if Role.OUT in site.roles:
            dims.setdefault(site.tensor, set()).add(site.dim)
    return dims


def _scales(space: Space) -> Dims:
    """The scales of norms; for groups that pass through none of them, the filters."""
    dims: Dims = {}
    scaled: set[str] = set()
    for site in space.sites:
        tensor = space.tensors[site.tensor]
        if tensor.is_parameter and len(tensor.shape) == 1 and site.roles == {Role.ALONG} and _is_scale(site.tensor):
            dims[site.tensor] = {site.dim}
            scaled.update(part.group for part in space.unit_parts(site.axis))
    for name, among in _filters(space).items():
        axes = space.axes(name)
        left = {dim for dim in among if not scaled.intersection(part.group for part in space.unit_parts(axes[dim]))}
        if left:
            dims[name] = left
    return dims


def _is_scale(tensor: str) -> bool:
    return split_path(tensor)[1] == "weight"  # as every norm of torch calls it; its shift is called bias


def _weight_sites(space: Space) -> Iterator[Site]:
    for site in space.sites:
        tensor = space.tensors[site.tensor]
        if tensor.is_parameter and (len(tensor.shape) > 1 or Role.IN in site.roles):
            yield site


_DIMS: Mapping[WeightsOf, Callable[[Space], Dims]] = {
    WeightsOf.UNIT: _all_weights,
    WeightsOf.FILTER: _filters,
    WeightsOf.SCALE: _scales,
}


def _owners(live: Live, tensor: str, dims: set[int]) -> dict[str, list[tuple[int, IntArray]]]:
    """For each group the dimensions it has a part of, and the unit of every live position there."""
    owners: dict[str, list[tuple[int, IntArray]]] = {}
    for dim, axis in enumerate(live.space.axes(tensor)):
        for group, units in live.owners(axis) if dim in dims else ():
            owners.setdefault(group, []).append((dim, units))
    return owners


def _shares(owners: Sequence[tuple[int, IntArray]], places: IntArray, device: torch.device) -> list[_Share]:
    """What each owner has, less what any two have together, and so on."""
    shares = []
    for count in range(1, len(owners) + 1):
        for chosen in itertools.combinations(owners, count):
            at, units = _agreeing(chosen)
            if len(units):
                indices = tuple(torch.from_numpy(index).to(device) for index in at.values())
                place = torch.from_numpy(places[units]).to(device)
                shares.append(_Share(tuple(at), indices, place, 1 if count % 2 else -1))
    return shares


def _agreeing(owners: Sequence[tuple[int, IntArray]]) -> tuple[Mapping[int, IntArray], IntArray]:
    """Where all owners name the same unit: indices along each dimension, and the units."""
    by_dim: dict[int, IntArray] = {}
    for dim, units in owners:
        before = by_dim.get(dim, units)
        by_dim[dim] = np.where(before == units, units, -1)
    at: dict[int, IntArray] = {}
    agreed = np.zeros(0, dtype=np.int64)
    for dim, units in by_dim.items():
        if not at:
            at[dim] = np.flatnonzero(units >= 0)
            agreed = units[at[dim]]
            continue
        pairs, here = np.nonzero(agreed[:, None] == units[None, :])
        at = {**{other: index[pairs] for other, index in at.items()}, dim: here}
        agreed = agreed[pairs]
    return at, agreed
