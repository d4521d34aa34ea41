"""A group lasso over units (Eq. Lasso): its gradient, small weights set to zero, and the norm of each unit's weights.

The weights of a unit are all that touch it, where it is made, passed along and read: every position that it owns in the
parameters of two or more dimensions, and in those it is read by. Biases and the vectors of norms are not among them. A
weight between two units belongs to both; one that a unit owns twice, of a recurrent cell say, counts once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.utils.hooks import RemovableHandle

from meristem.space.arrays import FloatArray, IntArray
from meristem.space.space import Role, Space
from meristem.surgery.live import Live

_EPSILON = 1e-8  # under the root, so that it has a slope at zero


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


class UnitLasso:
    """Acts at every step of the live model's optimizer from :meth:`attach` to :meth:`detach`.

    ``strength`` times the sum of the units' norms is added to the loss, after whatever the user does to gradients;
    then weights of at most ``threshold`` are set to zero.
    """

    def __init__(self, live: Live, strength: float, threshold: float) -> None:
        self._live, self._strength, self._threshold = live, strength, threshold
        self._version, self._size = -1, 0
        self._places: dict[str, IntArray] = {}  # of the units of each group that has weights
        self._weights: list[_Weight] = []
        self._handles: list[RemovableHandle] = []

    def attach(self) -> None:
        optimizer = self._live.optimizer
        if not self._handles and optimizer is not None:
            self._handles = [
                optimizer.register_step_pre_hook(self._before),
                optimizer.register_step_post_hook(self._after),
            ]

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @torch.no_grad()
    def norms(self) -> dict[str, FloatArray]:
        """The norm of each unit's weights: 0 for units that are not live, infinite where there is nothing to judge."""
        flat = self._squares().sqrt().cpu().double().numpy()
        found = {name: np.where(mask, np.inf, 0.0) for name, mask in self._live.masks.items()}
        for name, places in self._places.items():
            live = found[name] > 0
            found[name][live] = flat[places[live]]
        return found

    @torch.no_grad()
    def add_gradient(self, scale: Tensor | None = None) -> None:
        """Add the lasso's gradient to the weights' gradients; ``scale`` is what these are multiplied with."""
        slopes = self._strength / (self._squares() + _EPSILON).sqrt()
        slopes = slopes if scale is None else slopes * scale.to(slopes.device)
        for weight in self._weights:
            values = weight.values
            if not values.requires_grad:
                continue
            if values.grad is None:
                values.grad = torch.zeros_like(values)
            own = slopes.to(values.device, values.dtype)
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
    def zero_small(self) -> None:
        """Set weights of at most the threshold to zero."""
        for weight in self._weights:
            if weight.values.requires_grad:
                torch.ops.aten.hardshrink.out(weight.values, self._threshold, out=weight.values)

    # --- hooks ---

    def _before(self, optimizer: optim.Optimizer, args: Any, kwargs: Any) -> Any:
        def with_lasso(closure: Any) -> Any:
            return self._joined(closure) if callable(closure) else closure

        if any(callable(value) for value in (*args[1:], *kwargs.values())):  # gradients will be made inside the step
            return (args[0], *map(with_lasso, args[1:])), {name: with_lasso(value) for name, value in kwargs.items()}
        self.add_gradient(getattr(optimizer, "grad_scale", None))  # of a gradient scaler, on fused optimizers
        return None

    def _joined(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            loss = closure()
            self.add_gradient()
            return loss

        return call

    def _after(self, optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.zero_small()

    # --- who owns what ---

    def _squares(self) -> Tensor:
        """The sum of the squares of each unit's weights, in one flat list."""
        if self._version != self._live.version:
            self._index()
        home = next((weight.values for weight in self._weights), torch.empty(0))
        total = torch.zeros(self._size, device=home.device, dtype=torch.promote_types(home.dtype, torch.float32))
        for weight in self._weights:
            squares = weight.values.detach().to(total.dtype).square()
            for dim, shares in weight.single.items():
                rest = [other for other in range(squares.dim()) if other != dim]
                along = squares.sum(rest) if rest else squares
                for share in shares:
                    self._add(total, share, along[share.at[0]])
            for share in weight.several:
                picked = share.front(squares)[share.at].reshape(len(share.place), -1)
                self._add(total, share, picked.sum(1))
        return total

    @staticmethod
    def _add(total: Tensor, share: _Share, values: Tensor) -> None:
        total.index_add_(0, share.place.to(total.device), values.to(total.device), alpha=share.sign)

    def _index(self) -> None:
        live, space = self._live, self._live.space
        places, self._size = {}, 0
        for name, mask in live.active.items():
            places[name] = self._size + np.cumsum(mask) - 1
            self._size += int(mask.sum())
        self._weights, self._places, self._version = [], {}, live.version
        for name in _weights_of(space):
            values = live.tree.tensor(name)
            if not values.numel():  # of an absent block
                continue
            assert isinstance(values, nn.Parameter)
            single: dict[int, list[_Share]] = {}
            several: list[_Share] = []
            for group, owners in _owners(live, name).items():
                self._places[group] = places[group]
                for share in _shares(owners, places[group], values.device):
                    (single.setdefault(share.dims[0], []) if len(share.dims) == 1 else several).append(share)
            self._weights.append(_Weight(values, single, several))


def _weights_of(space: Space) -> list[str]:
    """Parameters of two or more dimensions, and those that read units."""
    found = [
        site.tensor
        for site in space.sites
        if (tensor := space.tensors[site.tensor]).is_parameter and (len(tensor.shape) > 1 or Role.IN in site.roles)
    ]
    return list(dict.fromkeys(found))


def _owners(live: Live, tensor: str) -> dict[str, list[tuple[int, IntArray]]]:
    """For each group the dimensions it has a part of, and whose the live positions there are; blocks are no units."""
    found: dict[str, list[tuple[int, IntArray]]] = {}
    for dim, axis in enumerate(live.space.axes(tensor)):
        positions = live.positions(axis)
        for part in axis.parts:
            if part.group not in live.space.blocks:
                found.setdefault(part.group, []).append((dim, part.units[positions]))
    return found


def _shares(owners: Sequence[tuple[int, IntArray]], places: IntArray, device: torch.device) -> list[_Share]:
    """What each owner has, less what any two have together, and so on."""
    found = []
    for count in range(1, len(owners) + 1):
        for chosen in itertools.combinations(owners, count):
            at, units = _agreeing(chosen)
            if len(units):
                indices = tuple(torch.from_numpy(index).to(device) for index in at.values())
                place = torch.from_numpy(places[units]).to(device)
                found.append(_Share(tuple(at), indices, place, 1 if count % 2 else -1))
    return found


def _agreeing(owners: Sequence[tuple[int, IntArray]]) -> tuple[Mapping[int, IntArray], IntArray]:
    """Where all owners name the same unit: indices along each dimension, and the units."""
    by_dim: dict[int, IntArray] = {}
    for dim, units in owners:
        before = by_dim.get(dim, units)
        by_dim[dim] = np.where(before == units, units, -1)
    at: dict[int, IntArray] = {}
    found = np.zeros(0, dtype=np.int64)
    for dim, units in by_dim.items():
        if not at:
            at[dim] = np.flatnonzero(units >= 0)
            found = units[at[dim]]
            continue
        pairs, here = np.nonzero(found[:, None] == units[None, :])
        at = {**{other: index[pairs] for other, index in at.items()}, dim: here}
        found = found[pairs]
    return at, found
