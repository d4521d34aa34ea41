"""Calls of a run's network: on its device, in its number formats, with the state it carries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from meristem.errors import MeristemError
from meristem_bench.runs.machine import Network
from meristem_bench.runs.run import Run
from meristem_bench.runs.transfer import moved


class Forward:
    """Calls a network, batch after batch.

    Where the run carries a state, each call passes on the one that the last call returned, detached from its gradients,
    and the first call passes none. So an epoch, and an evaluation, begins without any.
    """

    def __init__(self, run: Run, network: Network) -> None:
        self._run, self._network, self._state = run, network, None

    def __call__(self, inputs: Tensor) -> Any:
        if not self._run.data.unroll:
            return self._call(inputs)
        returned = self._call(inputs, self._state)
        outputs, state = returned[0], returned[1]  # as it was traced; what comes after is of no concern here
        self._state = tree_map(lambda value: value.detach() if isinstance(value, Tensor) else value, state)
        return outputs

    def on_device(self, inputs: Tensor) -> Tensor:
        """The inputs as the network is given them."""
        machine = self._run.machine
        inputs = moved(inputs, torch.device(machine.device))
        if machine.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs

    def _call(self, inputs: Tensor, *state: Any) -> Any:
        machine = self._run.machine
        with torch.autocast(torch.device(machine.device).type, torch.bfloat16, enabled=machine.bf16):
            return self._network(self.on_device(inputs), *state)


class TrainingForward(Forward):
    """`Forward` in training, where torch refuses some settings of a run: says which."""

    def __call__(self, inputs: Tensor) -> Any:
        run = self._run
        try:
            return super().__call__(inputs)
        except RuntimeError as error:
            if not run.machine.bf16 or "primitive" not in str(
                error
            ):  # of the CPU's library: it has none for this layer
                raise
            raise MeristemError(f"{run.name}: this machine cannot run the model in bf16; leave out bf16") from None
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise MeristemError(
                f"{run.name}: a norm over the batch meets one value a channel with batch={run.batch} and inputs of "
                f"this size; give a larger batch"
            ) from None
