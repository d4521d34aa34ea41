"""Conformance checks for a method of growing or pruning: what everything else here relies on."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.utils._pytree import tree_leaves

from meristem.control.method import Method
from meristem.cost.ledger import FORWARD_AND_BACKWARD, SEARCH, TEACH
from meristem.errors import MeristemError
from meristem.grower import Grower
from meristem.methods import parse_method
from meristem.testing.masked_reference import masked_reference

_ROOM = 0.01  # of the dense cost that may be left of a budget, if it is more than a unit


def check_method(
    method: Method | str,
    build: Callable[[], nn.Module],
    inputs: Sequence[Tensor],
    *,
    budget: str = "40%",
    epochs: int = 8,
    steps: int = 3,
    tolerance: float = 1e-4,
) -> None:
    """Train a small model of yours by a method, and raise a :class:`MeristemError` at the first thing that is not so.

    ``build`` makes the model, always the same; ``inputs`` are what it is called with. The loss is the mean square of
    what it returns. Checked are: every epoch's network computes what the full one computes with the other units masked;
    every parameter is trained; parameters and macs are counted right and every step is on the ledger; a run that is
    taken up in its middle gives the same losses; the last network is within the budget and, if it has one, uses it up.
    """
    method = parse_method(method) if isinstance(method, str) else method
    whole = _Trial(method, build, tuple(inputs), budget, epochs, steps, tolerance)
    middle: dict[str, Any] = {}
    for epoch in range(epochs):
        if epoch == epochs // 2:
            middle = {"grower": copy.deepcopy(whole.grower.state_dict()), "losses": list(whole.losses)}
        whole.train_epoch()
    whole.check_cost()
    whole.check_budget()
    again = _Trial(method, build, tuple(inputs), budget, epochs, steps, tolerance, list(middle["losses"]))
    again.grower.load_state_dict(middle["grower"])
    for _ in range(epochs - epochs // 2):
        again.train_epoch()
    if again.losses != whole.losses:
        at = next(step for step, (a, b) in enumerate(zip(again.losses, whole.losses, strict=True)) if a != b)
        raise MeristemError(f"a run that was taken up after epoch {epochs // 2} has another loss from step {at} on")


@dataclass
class _Trial:
    """One run of the method on the model."""

    method: Method
    build: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    budget: str
    epochs: int
    steps: int
    tolerance: float
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.full = self.build()
        self.model = self.build()
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.grower = Grower(
            self.model,
            self.optimizer,
            self.inputs,
            budget=self.budget,
            epochs=self.epochs,
            method=self.method,
            held_out_loss=self._held_out_loss if self.method.needs_held_out else None,
            short_training=self._train_briefly if self.method.tries_out else None,
        )

    def _held_out_loss(self, model: nn.Module) -> float:
        return float(_loss(model(*self.inputs)))

    def _train_briefly(self, model: nn.Module, steps: int, seed: int) -> None:
        noise = torch.Generator().manual_seed(seed)
        optimizer = optim.SGD(model.parameters(), lr=0.01)
        for _ in range(min(steps, self.steps)):
            optimizer.zero_grad()
            _loss(model(*[_shifted(each, noise) for each in self.inputs])).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def train_epoch(self) -> None:
        """Train on inputs that differ from step to step, the same for every trial, and decide."""
        self.model.train()
        for _ in range(self.steps):
            noise = torch.Generator().manual_seed(len(self.losses))
            batch = [_shifted(each, noise) for each in self.inputs]
            self.optimizer.zero_grad()
            outputs = self.model(*batch)
            loss = self.grower.taught(_loss(outputs), next(iter(tree_leaves(outputs))), *batch)
            loss.backward()  # type: ignore[no-untyped-call]
            self._check_gradients()
            self.optimizer.step()
            self.losses.append(float(loss.detach()))
        self.grower.step()
        self._check_network()

    def _check_gradients(self) -> None:
        held = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        for name, parameter in self.model.named_parameters():
            if parameter.grad is None or parameter.grad.shape != parameter.shape:
                raise MeristemError(f"{name} has no gradient of its shape in epoch {self.grower.epoch + 1}")
            if id(parameter) not in held:
                raise MeristemError(f"{name} is not in the optimizer in epoch {self.grower.epoch + 1}")

    def _check_network(self) -> None:
        """The network, gates folded in, computes what the full one does with its weights and the other units masked."""
        live = self.grower.live
        small = self.grower.export().eval()
        with torch.no_grad():
            outputs = [each for each in tree_leaves(small(*self.inputs)) if isinstance(each, Tensor)]
        full = self._widened(small)
        expected = masked_reference(full.eval(), live.space, live.masks, self.inputs).outputs
        for got, wanted in zip(outputs, expected, strict=True):
            error = float((got - wanted.detach()).abs().max() / wanted.detach().abs().max().clamp(min=1e-12))
            if not error <= self.tolerance:
                raise MeristemError(
                    f"after epoch {self.grower.epoch} the small network differs from the masked full one by {error:.1e}"
                )

    def _widened(self, small: nn.Module) -> nn.Module:
        """The full model with the weights of the small one in their places."""
        live, weights = self.grower.live, small.state_dict()
        with torch.no_grad():
            for name, tensor in self.full.state_dict(keep_vars=True).items():
                if name not in weights:
                    continue
                spec = next((each for each in live.space.tensors.values() if name in each.names), None)
                values, part = weights[name], tensor.data
                if spec is None or part.shape == values.shape:
                    part.copy_(values)
                elif values.numel():
                    index = torch.meshgrid(
                        *(torch.from_numpy(live.positions(axis)) for axis in live.space.axes(spec.name)), indexing="ij"
                    )
                    part[index] = values
        return self.full

    def check_cost(self) -> None:
        """Parameters are those of the network, and the ledger has every step at the cost of the network it trained."""
        ledger, records = self.grower.ledger, self.grower.records
        counted = sum(parameter.numel() for parameter in self.grower.export().parameters())
        if round(records[-1]["params"]) != counted and not self.grower.space.stages:
            raise MeristemError(f"the last record has {records[-1]['params']} parameters, the network has {counted}")
        steps = FORWARD_AND_BACKWARD * self.steps * ledger.dense_macs * sum(each["macs_frac"] for each in records)
        searched, taught = ledger.by_stage.get(SEARCH, 0.0), ledger.by_stage.get(TEACH, 0.0)
        lesson = self.method.distillation
        taught_epochs = sum(lesson is not None and each["stage"] == lesson.stage for each in records[1:])
        if not math.isclose(taught, self.steps * ledger.dense_macs * taught_epochs):
            raise MeristemError(
                f"a teacher answered in {taught_epochs} epochs, but the ledger has {taught:g} macs of it"
            )
        steps += taught
        if not (math.isclose(ledger.spent, sum(ledger.by_stage.values())) and ledger.spent >= steps * (1 - 1e-9)):
            raise MeristemError(f"the ledger has {ledger.spent:g} macs, its steps alone have cost {steps:g}")
        if not self.method.needs_held_out and not math.isclose(ledger.spent, steps):
            raise MeristemError(f"the ledger has {ledger.spent:g} macs, its steps have cost {steps:g}")
        if self.method.needs_held_out and not searched:
            raise MeristemError("the method may look at held-out data, but nothing of that is on the ledger")

    def check_budget(self) -> None:
        """Within the budget; and no more than a unit, or a hundredth of the dense cost, is left of it."""
        if not self.method.has_budget:
            return
        prices, widths = self.grower._growth.decider.prices, self.grower.widths
        caps = self.grower.budget.shares(prices)
        shares = prices.shares(widths)
        over = {name: share for name, share in shares.items() if name in caps and share > caps[name] * (1 + 1e-9)}
        for name, share in over.items():
            raise MeristemError(f"the last network has {share:.1%} of the {name}, the budget allows {caps[name]:.1%}")
        wider = [
            name
            for name, group in self.grower.space.groups.items()
            if widths[name] < group.units and prices.fits({**widths, name: widths[name] + 1}, caps)
        ]
        left = min(cap - shares[name] for name, cap in caps.items())
        if wider and left > _ROOM:
            raise MeristemError(f"{left:.1%} of the budget are left, and one more unit of {wider[0]} would fit")


def _loss(outputs: Any) -> Tensor:
    tensors = [each for each in tree_leaves(outputs) if isinstance(each, Tensor) and each.is_floating_point()]
    return torch.stack([each.square().mean() for each in tensors]).sum()


def _shifted(inputs: Tensor, noise: torch.Generator) -> Tensor:
    return inputs + torch.randn(inputs.shape, generator=noise) if inputs.is_floating_point() else inputs
