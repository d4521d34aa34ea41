"""Growing in a loop with accelerate: one call makes a grower whose state is in the accelerator's checkpoints.

model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
grower = prepare_grower(accelerator, model, optimizer, images[:1], budget="40%", epochs=20)
for epoch in range(grower.epoch, 20):
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = criterion(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    scheduler.step()
    grower.step()
    accelerator.save_state("checkpoint")
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from meristem.errors import MeristemError
from meristem.grower import Grower
from meristem.integrations.common import read_state, write_state

try:
    from accelerate import Accelerator
except ImportError as error:
    raise ImportError(
        "meristem.integrations.accelerate needs accelerate, which is not installed: pip install 'meristem[accelerate]'"
    ) from error


def prepare_grower(
    accelerator: Accelerator, model: nn.Module, optimizer: Any, example_inputs: Any = None, **settings: Any
) -> Grower:
    """Make a grower of what ``accelerator.prepare`` has returned; ``settings`` are those of :class:`meristem.Grower`.

    From then on ``accelerator.save_state`` saves it, too, and ``accelerator.load_state``, in a program that has come
    this far again, gives model, optimizer and grower the structure of the checkpoint before it loads the rest.
    """
    several = accelerator.num_processes > 1
    if several and not isinstance(model, DistributedDataParallel):
        raise MeristemError(
            f"accelerate runs {accelerator.num_processes} processes with {accelerator.distributed_type.value}, but the "
            f"grower follows DistributedDataParallel alone: give it what accelerator.prepare() returns, and leave out "
            f"FSDP and DeepSpeed"
        )
    grower = Grower(model if several else accelerator.unwrap_model(model), optimizer, example_inputs, **settings)

    def save(models: list[nn.Module], weights: list[Any], folder: str) -> None:
        if accelerator.is_main_process:
            write_state(grower, folder)

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(lambda models, folder: grower.load_state_dict(read_state(folder)))
    return grower
