"""Optimizers: a resized parameter takes its predecessor's slot, and its state moves with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn, optim

from meristem.errors import SurgeryError
from meristem.rules import OptimizerRule
from meristem.surgery.optimizer_rules import state_kinds
from meristem.surgery.optimizer_state import Exchange, check_state, resize_state


@dataclass(frozen=True)
class Slot:
    """The place of a parameter: which optimizer, which of its param groups, which position there."""

    optimizer: int
    group: int
    index: int


class Optimizers:
    """The optimizers of one model: mostly one, two where some parameters (Muon's matrices) have their own.

    ``rules`` are those for optimizers that are not known, see :class:`meristem.rules.OptimizerRule`.
    """

    def __init__(
        self, optimizers: optim.Optimizer | Iterable[optim.Optimizer], rules: Sequence[OptimizerRule] = ()
    ) -> None:
        given = [optimizers] if isinstance(optimizers, optim.Optimizer) else optimizers
        self.all = tuple(_unwrapped(each) for each in given)
        self.kinds = [state_kinds(each, rules) for each in self.all]  # of what each keeps

    def check(self, model: nn.Module) -> None:
        """Refuse optimizers that train nothing of ``model``, or the same parameter twice."""
        known = {id(parameter) for parameter in model.parameters()}
        for optimizer in self.all:
            if not known & {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}:
                raise SurgeryError(
                    "the optimizer holds none of the model's parameters; make it from model.parameters() of this model"
                )
        held = [id(each) for optimizer in self.all for group in optimizer.param_groups for each in group["params"]]
        if len(self.all) > 1 and len(set(held)) < len(held):
            raise SurgeryError(
                f"{len(held) - len(set(held))} parameters are in two optimizers at once; give each to one of them"
            )

    def slots(self) -> dict[int, Slot]:
        """Return where each parameter sits, by its id."""
        return {
            id(parameter): Slot(number, group, index)
            for number, optimizer in enumerate(self.all)
            for group, entry in enumerate(optimizer.param_groups)
            for index, parameter in enumerate(entry["params"])
        }

    def check_state(self, slot: Slot, name: str, parameter: nn.Parameter) -> None:
        """Refuse to resize a parameter of which an optimizer keeps what no rule names."""
        optimizer = self.all[slot.optimizer]
        if parameter in optimizer.state:
            where = f"for {name} {type(optimizer).__name__}"
            check_state(optimizer.state[parameter], self.kinds[slot.optimizer], parameter.shape, where)

    def replace(self, slot: Slot, old: nn.Parameter, new: nn.Parameter, exchange: Exchange) -> None:
        """Put ``new`` into the slot of ``old``; its state is resized entry by entry."""
        optimizer = self.all[slot.optimizer]
        optimizer.param_groups[slot.group]["params"][slot.index] = new
        if old in optimizer.state:
            state = optimizer.state.pop(old)
            resize_state(state, self.kinds[slot.optimizer], new, exchange)
            optimizer.state[new] = state

    def replace_without_state(self, slot: Slot, old: nn.Parameter, new: nn.Parameter) -> None:
        """Put ``new`` into the slot of ``old``, without any state."""
        optimizer = self.all[slot.optimizer]
        optimizer.param_groups[slot.group]["params"][slot.index] = new
        optimizer.state.pop(old, None)

    def exchange(
        self, new_of: Mapping[int, nn.Parameter], convert: Callable[[nn.Parameter, nn.Parameter, Tensor], Tensor]
    ) -> None:
        """Put other objects in place of parameters, by their id: the same weights, held otherwise. So is their state.

        ``convert(old, new, value)`` is called with every tensor of a state.
        """
        for optimizer in self.all:
            for group in optimizer.param_groups:
                for index, old in enumerate(group["params"]):
                    new = new_of.get(id(old), old)
                    group["params"][index] = new
                    if new is not old and old in optimizer.state:
                        state = optimizer.state.pop(old)
                        optimizer.state[new] = {
                            key: convert(old, new, value) if isinstance(value, Tensor) else value
                            for key, value in state.items()
                        }

    @property
    def lr(self) -> float:
        """The learning rate of the first one."""
        return float(self.all[0].param_groups[0]["lr"])

    def lr_frac(self, start: float) -> float:
        """Return the learning rate over that of the start: the one a scheduler notes, or else ``start``."""
        first = self.all[0].param_groups[0]
        start = float(first.get("max_lr", first.get("initial_lr", start)))
        return float(first["lr"]) / start if start else 1.0

    def state_dict(self) -> Any:
        """The state of the one, or a list with those of all."""
        states = [optimizer.state_dict() for optimizer in self.all]
        return states[0] if len(states) == 1 else states

    def load_state_dict(self, state: Any) -> None:
        for optimizer, kept in zip(self.all, [state] if len(self.all) == 1 else state, strict=True):
            optimizer.load_state_dict(kept)


def _unwrapped(optimizer: optim.Optimizer) -> optim.Optimizer:
    """The user's own optimizer inside the wrapper of a framework."""
    while type(optimizer).__name__ in ("AcceleratedOptimizer", "LightningOptimizer"):
        optimizer = optimizer.optimizer  # type: ignore[attr-defined]
    return optimizer
