"""What the laws share: zoo models in a given precision, random plans, gates, and comparisons."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim

from deep import ALL_NETS
from meristem import Gates, Live, Space
from meristem.space.arrays import BoolArray
from meristem.space.axis import Axis
from meristem.testing import masked_reference
from meristem.tracing.counted_outputs import counted_tensors
from meristem.tracing.model_copy import tensors_in

Target = dict[str, list[int]]
Optimizers = Callable[[Iterable[nn.Parameter]], optim.Optimizer]

OPTIMIZERS: dict[str, Optimizers] = {
    "sgd": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adam": lambda params: optim.Adam(params, lr=1e-2),
    "adamw_amsgrad": lambda params: optim.AdamW(params, lr=1e-2, amsgrad=True),
    "rmsprop_centered": lambda params: optim.RMSprop(params, lr=1e-3, momentum=0.9, centered=True),
}


# --- models -----------------------------------------------------------------------------------------------------


def build(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, tuple[Tensor, ...]]:
    model, inputs = ALL_NETS[name].build()
    return model.to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def run(model: nn.Module, inputs: Sequence[Any]) -> list[Tensor]:
    """All tensors that the model returns."""
    return tensors_in(model(*inputs))


def loss(outputs: Iterable[Tensor]) -> Tensor:
    return sum((out.square().mean() for out in outputs), torch.zeros(()))


def train(model: nn.Module, optimizer: optim.Optimizer, inputs: Sequence[Any], steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss(run(model, inputs)).backward()
        optimizer.step()


def trained(
    name: str, space: Space, kind: str, steps: int, start: Mapping[str, Iterable[int]] | None = None
) -> tuple[Live, optim.Optimizer, tuple[Tensor, ...]]:
    """A live net of the zoo in single precision, after so many steps of this optimizer, and its inputs."""
    model, inputs = build(name, torch.float32)
    optimizer = OPTIMIZERS[kind](model.parameters())
    live = Live(model, space, optimizer, start=start)
    train(model, optimizer, inputs, steps)
    return live, optimizer, inputs


# --- plans ------------------------------------------------------------------------------------------------------


def random_target(space: Space, rng: np.random.Generator) -> Target:
    """Some units of every group, at least one; of the blocks that may be absent, some are."""
    return {
        name: sorted(rng.permutation(group.units)[: rng.integers(group.min_units, group.units + 1)].tolist())
        for name, group in space.groups.items()
    }


def half(space: Space) -> Target:
    """Every other unit of every group."""
    return {name: list(range(0, group.units, 2)) for name, group in space.groups.items()}


def whole(space: Space) -> Target:
    return {name: list(range(group.units)) for name, group in space.groups.items()}


def without_blocks(space: Space, *blocks: str) -> Target:
    """A target for these blocks alone (default: all that may be absent): they are."""
    return {group: [] for group in blocks or space.blocks}


def half_without_some_blocks(space: Space) -> Target:
    """Every other unit of every group; of the blocks that may be absent, every other one is."""
    return half(space) | {group: [] for group in list(space.blocks)[::2]}


def go(live: Live, target: Mapping[str, Iterable[int]]) -> None:
    live.apply(live.plan(target))


def live_part(full: Tensor, space: Space, name: str, live: Live) -> Tensor:
    """The live positions of a full-size tensor."""
    return full[np.ix_(*[live.positions(axis) for axis in space.axes(name)])]


# --- gates ------------------------------------------------------------------------------------------------------


class RandomGates:
    """A trainable gate for every unit of the full model, live or not."""

    def __init__(self, space: Space, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        maker = torch.Generator().manual_seed(seed)
        self.space = space
        self.full = {
            name: (0.5 + torch.rand(group.units, generator=maker, dtype=dtype)).requires_grad_()
            for name, group in space.groups.items()
        }

    def on(self, live: Live) -> Gates:
        return Gates(live, lambda group: self.full[group][torch.from_numpy(live.masks[group])])

    def scales(self) -> dict[tuple[str, int], Tensor]:
        """The same gates as factors for all positions of every dimension that reads units."""
        return {
            (slot.tensor, slot.dim): self._positions(self.space.axes(slot.tensor)[slot.dim])
            for slot in self.space.slots
        }

    def _positions(self, axis: Axis) -> Tensor:
        factor = torch.ones(axis.size, dtype=next(iter(self.full.values())).dtype)
        for part in axis.parts:
            if part.group in self.space.blocks:  # a block is not read by a weight
                continue
            gate = self.full[part.group][torch.from_numpy(np.maximum(part.units, 0))]
            factor = factor * torch.where(torch.from_numpy(part.units >= 0), gate, torch.ones_like(gate))
        return factor

    def take_gradients(self) -> dict[str, Tensor]:
        found = {name: torch.zeros_like(gate) if gate.grad is None else gate.grad for name, gate in self.full.items()}
        for gate in self.full.values():
            gate.grad = None
        return found


def with_gates(name: str, space: Space, target: Mapping[str, Iterable[int]]) -> tuple[Live, Gates, tuple[Tensor, ...]]:
    """A live model of this size with gates, in eval mode. Its statistics are those of one training pass."""
    model, inputs = build(name, torch.float32)
    live = Live(model, space)
    go(live, target)
    gates = RandomGates(space, dtype=torch.float32).on(live)
    with torch.no_grad():
        model.train()(*inputs)
    model.eval()
    return live, gates, inputs


NOISE = 1e-8  # a gradient that is zero in theory (a bias under a norm) is rounding noise in both models


# --- comparisons ------------------------------------------------------------------------------------------------


def assert_near(got: Tensor, expected: Tensor, relative: float, what: str = "", floor: float = 0.0) -> None:
    """Largest difference, relative to the largest expected value; up to ``floor`` nothing counts."""
    assert got.shape == expected.shape, f"{what}: {tuple(got.shape)} against {tuple(expected.shape)}"
    if got.numel():
        worst = float((got.detach() - expected.detach()).abs().max())
        assert worst <= relative * float(expected.detach().abs().max()) + floor, f"{what}: off by {worst:.1e}"


def assert_all_near(got: Sequence[Tensor], expected: Sequence[Tensor], relative: float, what: str = "output") -> None:
    assert len(got) == len(expected)
    for number, (one, two) in enumerate(zip(got, expected, strict=True)):
        assert_near(one, two, relative, f"{what} {number}")


def assert_is_masked_reference(
    live: Live, full: nn.Module, inputs: tuple[Any, ...], gates: RandomGates | None = None
) -> None:
    """Law 4, for the live model as it is now: outputs, gradients of weights, gradients of gates."""
    space, masks = live.space, live.masks
    attached = gates.on(live) if gates is not None else None
    outputs = counted_tensors(live.model(*inputs), space.outputs, space.carried)
    if attached is not None:
        attached.detach()
    reference = masked_reference(full, space, masks, inputs, gates.scales() if gates is not None else None)
    assert_all_near(outputs, reference.outputs, 1e-9)
    maker = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(out.shape, generator=maker, dtype=out.dtype) for out in outputs]
    live.model.zero_grad()
    torch.autograd.backward(outputs, cotangents)
    mine = gates.take_gradients() if gates is not None else {}
    reference.backward(cotangents)
    for name, parameter in live.model.named_parameters():
        grad = reference.parameters[name].grad
        if not parameter.requires_grad:
            assert parameter.grad is grad is None, name
            continue
        assert parameter.grad is not None, name
        expected = torch.zeros(space.tensors[name].shape, dtype=parameter.dtype) if grad is None else grad
        assert_near(parameter.grad, live_part(expected, space, name, live), 1e-6, f"gradient of {name}", NOISE)
    if gates is not None:
        for name, expected in gates.take_gradients().items():
            assert_near(mine[name], expected, 1e-6, f"gradient of the gates of {name}", NOISE)


Snapshot = dict[str, Tensor]


def snapshot(model: nn.Module, optimizer: optim.Optimizer | None = None) -> Snapshot:
    """Every number that training depends on: weights, statistics, optimizer state."""
    found = {f"model {name}": tensor for name, tensor in model.state_dict().items()}
    if optimizer is not None:
        for name, parameter in model.named_parameters():
            for key, value in optimizer.state.get(parameter, {}).items():
                found[f"{key} of {name}"] = value if isinstance(value, Tensor) else torch.tensor(value or 0)
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def assert_same_bits(got: Snapshot, expected: Snapshot) -> None:
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype, name
        assert torch.equal(got[name], tensor), name


def state_of(model: nn.Module) -> dict[str, Any]:
    """What a refused operation must leave alone: tensors by identity and value, and remembered sizes."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    sizes = {
        (path, key): value
        for path, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, (int, tuple))
    }
    return {"tensors": {name: (id(tensor), copy.deepcopy(tensor.detach())) for name, tensor in tensors}, "sizes": sizes}


def assert_untouched(model: nn.Module, before: dict[str, Any]) -> None:
    now = state_of(model)
    assert now["sizes"] == before["sizes"]
    assert now["tensors"].keys() == before["tensors"].keys()
    for name, (identity, value) in before["tensors"].items():
        assert now["tensors"][name][0] == identity, name
        assert torch.equal(now["tensors"][name][1], value), name


def masks_equal(one: Mapping[str, BoolArray], two: Mapping[str, BoolArray]) -> bool:
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)
