"""The live model: applies plans to a model, its optimizer and its store. It acts; it never decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim

from meristem.errors import PlanError, SurgeryError
from meristem.space.arrays import BoolArray, IntArray
from meristem.space.axis import Axis
from meristem.space.paths import is_inside
from meristem.space.plan import Plan, plan_to
from meristem.space.rules import write_size
from meristem.space.space import Space
from meristem.surgery.carried_state import CarriedStates
from meristem.surgery.fresh import AsBuilt, Fresh
from meristem.surgery.fresh_blocks import BlockStarts
from meristem.surgery.fresh_units import with_fresh
from meristem.surgery.live_index import LiveIndex
from meristem.surgery.module_tree import ModuleTree
from meristem.surgery.optimizer import check_supported, replace_parameter, slots_of
from meristem.surgery.resize import resized
from meristem.surgery.store import Store


class Live:
    """A model whose groups can be resized while it trains.

    ``start`` (units per group) makes the model small at once: the other units of these groups count as never having
    lived, so that they are grown fresh. Without it everything is live. ``fresh`` is the rule for fresh units, see
    ``meristem.surgery.fresh``, and ``seed`` that of its random numbers, if it draws some.
    """

    def __init__(
        self,
        model: nn.Module,
        space: Space,
        optimizer: optim.Optimizer | None = None,
        *,
        start: Mapping[str, Iterable[int]] | None = None,
        fresh: Fresh | None = None,
        seed: int = 0,
    ) -> None:
        if optimizer is not None:
            check_supported(optimizer)
            if not {id(parameter) for parameter in model.parameters()} & set(slots_of(optimizer)):
                raise SurgeryError(
                    "the optimizer holds none of the model's parameters; make it from model.parameters() of this model"
                )
        self.model, self.space, self.optimizer = model, space, optimizer
        self.tree = ModuleTree(model)
        self.fresh: Fresh = fresh or AsBuilt()
        self._block_starts = BlockStarts(self.tree, space, seed)
        self.version = 0
        self._index: LiveIndex | None = None
        self._masks = {name: np.ones(group.units, dtype=np.bool_) for name, group in space.groups.items()}
        self._lived = {name: mask.copy() for name, mask in self._masks.items()}
        self._resizable = list(dict.fromkeys(site.tensor for site in space.sites))
        self._channels_last: set[str] = set()
        self._store = Store(lambda name: [axis.restarts for axis in space.axes(name)])
        self._states = CarriedStates(space)
        self._known: dict[str, nn.Parameter] = {}
        self._made_as = self._kept_as()
        self._check_and_adopt(self._never_lived(start or {}))
        self._remember()
        if start is not None:
            self.apply(self.plan(start))
            self._lived = self.active
            self._states.forget()

    # --- reading ---

    @property
    def widths(self) -> dict[str, int]:
        return {name: int(mask.sum()) for name, mask in self._masks.items()}

    @property
    def masks(self) -> dict[str, BoolArray]:
        """Which units of each group are live (copies)."""
        return {name: mask.copy() for name, mask in self._masks.items()}

    @property
    def active(self) -> dict[str, BoolArray]:
        """The live units that take part: not those of groups inside an absent block."""
        inactive = self.inactive_groups
        return {name: mask & (name not in inactive) for name, mask in self._masks.items()}

    @property
    def inactive_groups(self) -> frozenset[str]:
        """The groups that lie in absent blocks."""
        return self.space.inactive_groups(self._masks)

    @property
    def lived(self) -> dict[str, BoolArray]:
        """Which units of each group are live or have ever been (copies)."""
        return {name: mask.copy() for name, mask in self._lived.items()}

    def plan(self, target: Mapping[str, Iterable[int]]) -> Plan:
        """The plan that makes exactly ``target[group]`` live in every group it names."""
        return plan_to(self.space, target, self._masks, self._lived)

    def positions(self, axis: Axis) -> IntArray:
        """The live positions of an axis of the full model, in order."""
        return np.flatnonzero(axis.live(self._masks))

    def owners(self, axis: Axis) -> list[tuple[str, IntArray]]:
        """For every part of an axis that units own: its group, and the unit that owns each live position, or -1."""
        positions = self.positions(axis)
        return [(part.group, part.units[positions]) for part in self.space.unit_parts(axis)]

    @property
    def active_index(self) -> LiveIndex:
        """Where the units that take part stand in one flat list, groups in the order of the space."""
        if self._index is None:
            self._index = LiveIndex(self.active)
        return self._index

    # --- acting ---

    def apply(self, plan: Plan) -> None:
        """Carry out a plan: resize tensors, move optimizer state, write the sizes that modules remember."""
        masks, grown = self._after(plan)
        slots = slots_of(self.optimizer) if self.optimizer is not None else {}
        touched = {name for name, change in plan.changes.items() if change.grow or change.restore or change.prune}
        for name in self._resizable:
            axes = self.space.axes(name)
            if any(group in touched for axis in axes for group in axis.groups):
                self._resize(name, axes, masks, grown, slots)
        self._states.changing(self._masks, masks)
        self._masks = masks
        for name, mask in self.active.items():
            self._lived[name] |= mask
        self._move_blocks()
        self._write_sizes(touched)
        self._remember()
        self.version += 1
        self._index = None

    def _move_blocks(self) -> None:
        """Put blocks in and take them out as the masks say."""
        absent = set(self.tree.absent)
        for group, block in self.space.blocks.items():
            live = bool(self._masks[group][0])
            if live and block.path in absent:
                self.tree.put_back(block.path)
            elif not live and block.path not in absent:
                self.tree.leave_out(block.path, block.way)

    def _write_sizes(self, touched: Collection[str]) -> None:
        for attribute in self.space.attributes:
            if any(group in touched for group in attribute.axis.groups):
                size = len(self.positions(attribute.axis))
                write_size(self.tree.module(attribute.module), attribute.name, attribute.index, size)

    def _after(self, plan: Plan) -> tuple[dict[str, BoolArray], dict[str, BoolArray]]:
        """The masks after ``plan`` and the units it grows; refuses a plan made for another state.

        The units of a block that is grown itself are not fresh ones of a network that was there before: the block is
        fresh as a whole.
        """
        masks = self.masks
        grown = {name: np.zeros_like(mask) for name, mask in masks.items()}
        for name, change in plan.changes.items():
            if name not in masks:
                raise PlanError(f"the plan names the group {name!r}, which this space does not have")
            if len(change.live) < self.space.groups[name].min_units:
                few = "empty" if not change.live else f"with {len(change.live)}"
                least = (
                    "one unit"
                    if self.space.groups[name].min_units == 1
                    else f"{self.space.groups[name].min_units} units"
                )
                raise PlanError(f"the plan leaves group {name!r} {few}; at least {least} must stay live")
            expected = plan_to(self.space, {name: change.live}, self._masks, self._lived).changes[name]
            if change != expected:
                raise PlanError(
                    f"the plan for group {name!r} was made for another state of the model than it has now "
                    f"(it has {int(masks[name].sum())} live units); make it with live.plan(...)"
                )
            masks[name][:] = False
            masks[name][list(change.live)] = True
            grown[name][list(change.grow)] = True
        for name, block in self.space.enclosing_block.items():
            if grown[block][0]:
                grown[name][:] = False
        return masks, grown

    def _resize(
        self,
        name: str,
        axes: tuple[Axis, ...],
        masks: Mapping[str, BoolArray],
        grown: Mapping[str, BoolArray],
        slots: Mapping[int, tuple[int, int]],
    ) -> None:
        current = self._tensor(name)
        old = [np.flatnonzero(axis.live(self._masks)) for axis in axes]
        new = [np.flatnonzero(axis.live(masks)) for axis in axes]
        if all(np.array_equal(was, now) for was, now in zip(old, new, strict=True)):
            return
        with torch.no_grad():
            values = self._store.exchange(name, current.detach(), old, new)
            if isinstance(current, nn.Parameter) and values.numel():
                values = self._with_fresh(name, values, new, grown, current.requires_grad)
            values = self._formatted(name, values)
            if not isinstance(current, nn.Parameter):
                self._write(name, values)
                return
            parameter = nn.Parameter(values, requires_grad=current.requires_grad)
            # Without a gradient an absent block takes no part in a step; a sparse one is made anew by every step.
            if current.grad is not None and not current.grad.is_sparse and values.numel():
                nothing = current.grad.new_zeros(()).expand(self.space.tensors[name].shape)
                parameter.grad = self._formatted(name, resized(current.grad, nothing, old, new))
        self._write(name, parameter)
        if self.optimizer is not None and id(current) in slots:
            replace_parameter(
                self.optimizer,
                slots[id(current)],
                current,
                parameter,
                lambda key, state, fill: self._formatted(
                    name, self._store.exchange_state(name, key, state, old, new, fill)
                ),
            )

    def _with_fresh(
        self, name: str, values: Tensor, positions: list[IntArray], grown: Mapping[str, BoolArray], trained: bool
    ) -> Tensor:
        own = self._block_starts.answer(self.fresh, name, values, grown) if trained else None
        return own if own is not None else with_fresh(self.space, self.fresh, name, values, positions, grown)

    def stay(self) -> None:
        """An epoch is over and nothing changes."""
        self._states.changing(self._masks, self._masks)

    def resize_state(self, state: Any) -> Any:
        """A state that was carried from before the last change, as one of the network now; see :class:`Grower`."""
        return self._states.fitted(state, self._masks, self._trained)

    @property
    def _trained(self) -> bool:
        """Whether it has been trained since the last change."""
        versions = self._versions.items()
        return self._trained_before or any(self._tensor(name)._version != version for name, version in versions)

    def check_untouched(self) -> None:
        """Refuse to go on with a model whose parameters somebody else has exchanged."""
        for name, known in self._known.items():
            if self._tensor(name) is not known:
                raise SurgeryError(
                    f"{name} is not the parameter it was: the model was changed behind the grower's back; change it "
                    f"before the grower is made, or export() the network and go on with that"
                )
        if self.tree.absent and (now := self._kept_as()) != self._made_as:
            raise SurgeryError(
                f"the model was converted from {self._made_as} to {now} while it grows, which does not reach blocks "
                f"that are absent ({self.tree.absent[0]}): convert it before the grower is made"
            )

    def _kept_as(self) -> str:
        """Precision and device of the model's first parameter; a conversion changes that of all."""
        first = next(self.model.parameters())
        return f"{first.dtype} on {first.device}"

    def _remember(self) -> None:
        tensors = {name: self._tensor(name) for name in self._resizable}
        self._known = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, nn.Parameter)}
        self._versions = {name: parameter._version for name, parameter in self._known.items()}
        self._trained_before = False

    # --- keeping and restoring ---

    def state(self) -> dict[str, Any]:
        """Everything a live model of the same space needs to become this one; tensors are not copied."""
        tensors = {name: self.tree.held(name) for name in self.space.tensors}
        known = {alias for tensor in self.space.tensors.values() for alias in tensor.names}
        return {
            "masks": self._masks,
            "lived": self._lived,
            "tensors": {name: None if held is None else held.detach() for name, held in tensors.items()},
            "buffers": {name: held for name, held in self.tree.buffers().items() if name not in known},  # made later
            "store": self._store.state(),
            "carried": {"before": self._states.missed, "trained": self._trained},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Become the live model that was kept. Everything is checked before anything changes."""
        masks: dict[str, BoolArray] = dict(state["masks"])
        self._check_state(state, masks)
        slots = slots_of(self.optimizer) if self.optimizer is not None else {}
        device = next(self.model.parameters()).device
        for name, value in state.get("buffers", {}).items():
            self.tree.write_buffer(name, value.to(device, copy=True))
        for name in self.space.tensors:
            current, kept = self.tree.held(name), state["tensors"][name]
            if current is None or kept is None:  # a buffer
                for alias in self.space.tensors[name].names:
                    self.tree.write_buffer(alias, None if kept is None else kept.to(device, copy=True))
                continue
            values = self._formatted(name, kept.to(current.device, current.dtype, copy=True))
            if tuple(current.shape) == tuple(values.shape):
                with torch.no_grad():
                    current.copy_(values)
                current.grad = None
                continue
            if not isinstance(current, nn.Parameter):
                self._write(name, values)
                continue
            parameter = nn.Parameter(values, requires_grad=current.requires_grad)
            self._write(name, parameter)
            if self.optimizer is not None and id(current) in slots:
                group, index = slots[id(current)]
                self.optimizer.param_groups[group]["params"][index] = parameter
                self.optimizer.state.pop(current, None)
        self._masks = {name: mask.copy() for name, mask in masks.items()}
        self._lived = {name: mask.copy() for name, mask in state["lived"].items()}
        self._move_blocks()
        self._store.load_state(state["store"])
        self._write_sizes(set(masks))
        self._remember()
        carried = state.get("carried", {"before": [], "trained": False})  # files of before do not have it
        self._states.restore(carried["before"])
        self._trained_before = bool(carried["trained"])
        self.version += 1
        self._index = None

    def _check_state(self, state: Mapping[str, Any], masks: Mapping[str, BoolArray]) -> None:
        units = {name: group.units for name, group in self.space.groups.items()}
        if {name: len(mask) for name, mask in masks.items()} != units or set(state["lived"]) != set(units):
            raise SurgeryError("what was kept belongs to a model with other groups than this one")
        if set(state["tensors"]) != set(self.space.tensors):
            raise SurgeryError("what was kept belongs to a model with other tensors than this one")
        for name, tensor in self.space.tensors.items():
            if not tensor.is_parameter and name not in self._resizable:
                continue  # a buffer that is nobody's units may have any size, a cache that grows say
            expected = [int(axis.live(masks).sum()) for axis in self.space.axes(name)]
            if state["tensors"][name] is None or list(state["tensors"][name].shape) != expected:
                raise SurgeryError(f"what was kept does not fit: {name} has not the size {expected}")

    # --- the model's tensors ---

    def _never_lived(self, start: Mapping[str, Iterable[int]]) -> dict[str, str]:
        """For what is trained in blocks that are absent from the start: the same in a block that is built alike.

        Buffers, a causal mask say, and frozen parameters mean something as they are: they are kept.
        """
        alike: dict[tuple[Any, ...], str] = {}
        found: dict[str, str] = {}
        for group, block in self.space.blocks.items():
            size = len(block.path)
            mine = [name for name in self._resizable if is_inside(name, block.path)]
            built = tuple((name[size:], self.space.tensors[name].shape) for name in mine)
            first = alike.setdefault((type(self.tree.module(block.path)), built), block.path)
            if first != block.path and group in start and not list(start[group]):
                trained = [name for name in mine if self._tensor(name).requires_grad]
                found.update({name: first + name[size:] for name in trained})
        return found

    def _check_and_adopt(self, like: Mapping[str, str]) -> None:
        for name, known in self.space.tensors.items():
            try:
                tensor = self._tensor(name)
            except AttributeError:
                raise SurgeryError(
                    f"the model has no tensor {name!r}, which the space was traced with; trace it again"
                ) from None
            if tuple(tensor.shape) != known.shape:
                raise SurgeryError(
                    f"the model's {name} is {tuple(tensor.shape)}, but the space was traced with {known.shape}; "
                    f"a live model starts from the full-size one"
                )
        for name in self._resizable:
            tensor = self._tensor(name)
            if name not in like:
                self._store.adopt(name, tensor)
            if (
                tensor.dim() == 4
                and not tensor.is_contiguous()
                and tensor.is_contiguous(memory_format=torch.channels_last)
            ):
                self._channels_last.add(name)
        for name, other in like.items():
            self._store.adopt_like(name, other)

    def _formatted(self, name: str, values: Tensor) -> Tensor:
        if name in self._channels_last:
            return values.contiguous(memory_format=torch.channels_last)
        return values.contiguous()

    def _tensor(self, name: str) -> Tensor:
        return self.tree.tensor(name)

    def _write(self, name: str, tensor: Tensor) -> None:
        for alias in self.space.tensors[name].names:
            self.tree.write(alias, tensor)


@torch.no_grad()
def scale_reads(live: Live) -> None:
    """Multiply every weight that reads units by sqrt(full / live inputs).

    Initialisers make weights smaller the more inputs there are; what was cut out of a full-size model is too small.
    """
    for tensor, dim in dict.fromkeys((slot.tensor, slot.dim) for slot in live.space.slots):
        axis, weight = live.space.axes(tensor)[dim], live.tree.tensor(tensor)
        if weight.numel():  # not of an absent block
            weight.mul_((axis.size / len(live.positions(axis))) ** 0.5)
