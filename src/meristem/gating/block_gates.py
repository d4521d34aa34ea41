"""Gates of blocks: a live block returns `(1 - g) * x + g * block(x)`; the task's pull on g is read backwards.

Blocks stay plain: a forward hook mixes, and a hook on the result reads `g * dL/dg = g * sum(dL/dy * (block(x) - x))`.
The input and the output it needs are kept by torch for the backward pass anyway. The pulls of units are read from
gradients when the optimizer steps; so that those of blocks are the same, what the user has done to gradients until then
(unscaling, clipping, clearing) is read off one weight of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from meristem.distributed.agreement import is_distributed, mean_over_ranks
from meristem.gating.grad_probe import GradProbe
from meristem.gating.hooks import AttachableHooks
from meristem.gating.opening import Opening
from meristem.surgery.live import Live

Values = Callable[[str], Tensor | None]


class BlockGates(AttachableHooks):
    """Hooks on all blocks that may be absent, until :meth:`detach`. ``values(group)`` is the gate, None: it is 1.

    That of a block which has just come in is multiplied with how far it is open.
    """

    def __init__(self, live: Live, values: Values, opening: Opening | None = None) -> None:
        super().__init__()
        self._values, self._live, self._opening = values, live, opening or Opening(0.0)
        self._pulls: dict[str, Tensor] = {}
        self._probes: dict[str, GradProbe] = {}
        self._version = -1
        self.attach()

    def attach(self) -> None:
        """Also after every change of the network: the weights are others then."""
        super().attach()
        if self._version != self._live.version:
            self._watch()

    def detach(self) -> None:
        super().detach()
        self._unwatch()

    def _hooks(self) -> list[RemovableHandle]:
        return [
            self._live.tree.module(block.path).register_forward_hook(_Mix(self, group))
            for group, block in self._live.space.blocks.items()
        ]

    def _watch(self) -> None:
        self._unwatch()
        self._version = self._live.version
        for group, block in self._live.space.blocks.items():
            trained = [weight for weight in self._live.tree.module(block.path).parameters() if weight.requires_grad]
            if trained and trained[-1].numel():  # the last one has a gradient also where those before it have none
                self._probes[group] = GradProbe(trained[-1])

    def _unwatch(self) -> None:
        for probe in self._probes.values():
            probe.remove()
        self._probes, self._version = {}, -1

    def gate(self, group: str) -> Tensor | None:
        learned, opened = self._values(group), self._opening.value(group)
        if learned is None or opened is None:
            return opened if learned is None else learned
        return learned * opened

    def add(self, group: str, pull: Tensor) -> None:
        """What a backward pass gives; pulls add up as gradients do, and are forgotten when those are cleared."""
        earlier, probe = self._pulls.get(group), self._probes.get(group)
        if earlier is not None and probe is not None:
            earlier = probe.surviving(earlier)
        self._pulls[group] = pull if earlier is None else earlier + pull

    def take_pulls(self) -> dict[str, Tensor]:
        """The pull on each block's gate since the last time it was taken, as the gradients are now."""
        pulls, self._pulls = self._pulls, {}
        gradients = {group: probe.take_gradient() for group, probe in self._probes.items()}
        if is_distributed():
            self._average(pulls, gradients)
        factors = {group: probe.factor(gradients[group]) for group, probe in self._probes.items()}
        return {group: pull * torch.as_tensor(factors.get(group, 1.0)).to(pull) for group, pull in pulls.items()}

    def _average(self, pulls: dict[str, Tensor], gradients: dict[str, Tensor | None]) -> None:
        """Each rank has seen its own samples; gates that went their own ways would make different networks of them."""
        live = self._live.masks
        groups = [group for group in self._live.space.blocks if live[group][0]]
        if not groups:
            return
        nothing = torch.zeros((), device=next(self._live.model.parameters()).device)
        parts: list[Tensor] = [pulls.get(group, nothing).reshape(1) for group in groups]
        watched = [group for group in groups if group in self._probes]
        for group in watched:
            gradient = gradients[group]
            parts.append(
                nothing.expand(self._probes[group].shape.numel()) if gradient is None else gradient.float().flatten()
            )
        means = torch.split(mean_over_ranks(torch.cat(parts)), [part.numel() for part in parts])
        pulls.update({group: mean.reshape(()) for group, mean in zip(groups, means[: len(groups)], strict=True)})
        gradients.update(zip(watched, means[len(groups) :], strict=True))


class _Mix:
    """A forward hook that mixes the input and the output of one block."""

    def __init__(self, block_gates: BlockGates, group: str) -> None:
        self._block_gates, self._group = block_gates, group

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        """In a copy of the model, or a pickle of it, the hook does nothing."""
        return _no_hook, ()

    def __call__(self, module: Any, args: Any, output: Any) -> Any:
        x, y = args[0], output[0] if isinstance(output, tuple) else output
        gate = self._block_gates.gate(self._group)
        mixed = y if gate is None else torch.lerp(x.to(y.dtype), y, gate.to(y.dtype).reshape(()))
        if mixed.requires_grad:
            mixed.register_hook(_ReadPull(self._block_gates, self._group, x.detach(), y.detach(), gate))
        if mixed is y:
            return None
        return (mixed, *output[1:]) if isinstance(output, tuple) else mixed


class _ReadPull:
    """Reads the pull when the gradient of the result is known."""

    def __init__(self, block_gates: BlockGates, group: str, x: Tensor, y: Tensor, gate: Tensor | None) -> None:
        self._block_gates, self._group, self._gate = block_gates, group, gate
        self._x, self._y, self._versions = x, y, (x._version, y._version)

    def __call__(self, gradient: Tensor) -> None:
        if (self._x._version, self._y._version) != self._versions:
            return  # overwritten by what came next: nothing can be said about this step
        # In single precision: with half and a scaled loss the sum would overflow.
        pull = (gradient.float() * (self._y - self._x)).sum(dtype=torch.float32)
        self._block_gates.add(self._group, pull if self._gate is None else pull * self._gate.detach().reshape(()))


def _no_hook() -> Callable[..., None]:
    return _nothing


def _nothing(module: Any, args: Any, output: Any) -> None:
    """What is left of a hook in a copy."""
