"""The live model: applies plans to a model, its optimizer and its store. It acts; it never decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim

from meristem.distributed.agreement import take_from_rank_0
from meristem.errors import PlanError, SurgeryError
from meristem.rules import OptimizerRule
from meristem.space.arrays import BoolArray, IntArray
from meristem.space.axis import Axis
from meristem.space.live_index import LiveIndex
from meristem.space.nested_tensors import leave_shortcut
from meristem.space.plan import Plan, plan_to
from meristem.space.space import Role, Space
from meristem.surgery.averaged_copy import AveragedCopy
from meristem.surgery.carried_state import CarriedStates
from meristem.surgery.fresh import AsBuilt, Fresh
from meristem.surgery.fresh_blocks import FreshBlockValues
from meristem.surgery.model_tensors import ModelTensors
from meristem.surgery.module_tree import ModuleTree
from meristem.surgery.optimizer import Optimizers
from meristem.surgery.parameter_watch import ParameterWatch
from meristem.surgery.store import Store
from meristem.surgery.store_filling import fill_store
from meristem.surgery.structure import move_blocks, write_sizes
from meristem.surgery.tensor_resizer import TensorResizer


class Live:
    """A model whose groups can be resized while it trains.

    ``start`` (units per group) makes the model small at once: the other units of these groups count as never having
    lived, so that they are grown fresh. Without it everything is live. ``fresh`` is the rule for fresh units, see
    ``meristem.surgery.fresh``, and ``seed`` that of its random numbers, if it draws some. ``optimizer`` may be a
    sequence of several; ``rules`` describe those that are not known, see :class:`meristem.rules.OptimizerRule`.
    """

    def __init__(
        self,
        model: nn.Module,
        space: Space,
        optimizer: optim.Optimizer | Sequence[optim.Optimizer] | Optimizers | None = None,
        *,
        start: Mapping[str, Iterable[int]] | None = None,
        fresh: Fresh | None = None,
        seed: int = 0,
        rules: Sequence[OptimizerRule] = (),
    ) -> None:
        given = () if optimizer is None else optimizer
        self.optimizers = given if isinstance(given, Optimizers) else Optimizers(given, rules)
        self.optimizers.check(model)
        self.model, self.space = model, space
        self.tree = ModuleTree(model)
        self.fresh: Fresh = fresh or AsBuilt()
        self.version = 0
        self._index: LiveIndex | None = None
        self._masks = {name: np.ones(group.units, dtype=np.bool_) for name, group in space.groups.items()}
        self._lived = {name: mask.copy() for name, mask in self._masks.items()}
        self._tensors = ModelTensors(model, self.tree, space)
        self._watch = ParameterWatch(model, self.tree, self._tensors)
        self._store = Store(lambda name: [axis.restarts for axis in space.axes(name)])
        fill_store(self._store, self._tensors, self.tree, space, start or {})
        block_values = FreshBlockValues(self.tree, space, seed)
        self._resizer = TensorResizer(space, self._tensors, self._store, self.optimizers, self.fresh, block_values)
        self._carried_states = CarriedStates(space)
        self._averaged: list[AveragedCopy] = []
        if start is not None:
            self.apply(self.plan(start))
            self._lived = self.active
            self._store.forget_state()
            self._carried_states.forget()

    # --- reading ---

    @property
    def optimizer(self) -> optim.Optimizer | None:
        """The optimizer, of several the first."""
        return next(iter(self.optimizers.all), None)

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
        masks, grown = self._masks_after(plan)
        self._resizer.check_optimizer_state()
        changed = {name for name, change in plan.changes.items() if change.grow or change.restore or change.prune}
        self._resizer.resize(changed, self._masks, masks, grown)
        self._carried_states.changing(self._masks, masks)
        before, self._masks = self._masks, masks
        for name, mask in self.active.items():
            self._lived[name] |= mask
        self._restructure(changed)
        for copy in self._averaged:
            copy.follow(changed, before, masks, self._tensors)
        self._finish_change()

    def take_over(self, weights: Mapping[str, Tensor]) -> None:
        """Go on with the tensors of a copy of the model as it is now; on every rank with those of rank 0."""
        self.model.load_state_dict(weights)
        take_from_rank_0([tensor for tensor in self.model.state_dict().values() if isinstance(tensor, Tensor)])

    def stay(self) -> None:
        """Note that an epoch is over and nothing changes."""
        self._carried_states.changing(self._masks, self._masks)

    def resize_state(self, state: Any) -> Any:
        """Return a state that was carried from before the last change as one of the network now."""
        return self._carried_states.fitted(state, self._masks, self._watch.trained)

    def follow(self, averaged: nn.Module) -> None:
        """Let a copy of the model whose weights are averages be resized with it from now on."""
        key = f"averaged copy {len(self._averaged)}"
        self._averaged.append(AveragedCopy(averaged, self.space, self._store, key, self._masks))

    @property
    def averages(self) -> list[Tensor]:
        """The tensors of all copies that follow."""
        models = [copy.model for copy in self._averaged]
        return [tensor for model in models for tensor in (*model.parameters(), *model.buffers())]

    def check_untouched(self) -> None:
        """Refuse to go on with parameters that somebody else has exchanged, or optimizer state that no rule names."""
        self._watch.check_untouched()
        self._resizer.check_optimizer_state()

    def parameters_replaced(self) -> None:
        """Note that the parameters are other objects now, with the same weights: sharded, or whole again."""
        self._finish_change(trained=True)

    def _masks_after(self, plan: Plan) -> tuple[dict[str, BoolArray], dict[str, BoolArray]]:
        """The masks after ``plan`` and the units it grows; refuses a plan made for another state.

        The units of a block that is grown itself are not fresh ones of a network that was there before: the block is
        fresh as a whole.
        """
        masks = self.masks
        grown = {name: np.zeros_like(mask) for name, mask in masks.items()}
        for name, change in plan.changes.items():
            if name not in masks:
                raise PlanError(f"the plan names the group {name!r}, which this space does not have")
            min_units = self.space.groups[name].min_units
            if len(change.live) < min_units:
                few = "empty" if not change.live else f"with {len(change.live)}"
                least = "one unit" if min_units == 1 else f"{min_units} units"
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

    def _restructure(self, changed: Collection[str]) -> None:
        move_blocks(self.tree, self.space, self._masks)
        write_sizes(self.tree, self.space, self._masks, changed)
        leave_shortcut(self.model)

    def _finish_change(self, trained: bool = False) -> None:
        self._watch.renew(trained)
        self._index = None
        self.version += 1

    # --- keeping and restoring ---

    def state_dict(self) -> dict[str, Any]:
        """Return everything a live model of the same space needs to become this one; tensors are not copied."""
        return {
            "masks": self._masks,
            "lived": self._lived,
            **self._tensors.state_dict(),
            "store": self._store.state_dict(),
            "averaged": [copy.state_dict() for copy in self._averaged],
            "carried": {"before": self._carried_states.missed, "trained": self._watch.trained},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the live model that was kept. Everything is checked before anything changes."""
        masks: dict[str, BoolArray] = dict(state["masks"])
        units = {name: group.units for name, group in self.space.groups.items()}
        if {name: len(mask) for name, mask in masks.items()} != units or set(state["lived"]) != set(units):
            raise SurgeryError("what was kept belongs to a model with other groups than this one")
        self._tensors.check_state(state, masks)
        averaged = state.get("averaged", [])
        if len(averaged) != len(self._averaged):
            raise SurgeryError(
                f"it was kept with {len(averaged)} averaged copies that follow the model, here are "
                f"{len(self._averaged)}; call follow(...) for each before the state is loaded"
            )
        for copy, kept in zip(self._averaged, averaged, strict=True):
            copy.check_state(kept, masks)
        self._tensors.load_state_dict(state, next(self.model.parameters()).device, self.optimizers)
        self._masks = {name: mask.copy() for name, mask in masks.items()}
        self._lived = {name: mask.copy() for name, mask in state["lived"].items()}
        self._store.load_state_dict(state["store"])
        self._restructure(set(masks))
        for copy, kept in zip(self._averaged, averaged, strict=True):
            copy.load_state_dict(kept, masks)
        carried = state["carried"]
        self._carried_states.restore(carried["before"])
        self._finish_change(bool(carried["trained"]))


@torch.no_grad()
def scale_reads(live: Live) -> None:
    """Multiply every weight that reads units by sqrt(full / live inputs).

    Initialisers make weights smaller the more inputs there are; what was cut out of a full-size model is too small.
    """
    reading = {(site.tensor, site.dim) for site in live.space.sites if Role.IN in site.roles}
    for tensor, dim in dict.fromkeys((slot.tensor, slot.dim) for slot in live.space.slots):
        if (tensor, dim) not in reading:  # the scale of a norm: it adds up no inputs
            continue
        axis, weight = live.space.axes(tensor)[dim], live.tree.tensor(tensor)
        if weight.numel():  # not of an absent block
            weight.mul_((axis.size / len(live.positions(axis))) ** 0.5)
