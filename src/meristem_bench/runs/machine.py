"""What a run is computed on, and how: the device, its number formats and its compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch

from meristem.errors import MeristemError
from meristem_bench.runs.memory import keep_freed_memory
from meristem_bench.runs.settings import Count, Positive, at_most, check_settings

Network = Callable[..., Any]  # called with inputs, and with a state where one is carried on


@dataclass(frozen=True)
class Machine:
    device: str = "cpu"
    threads: Annotated[Count, at_most(1024)] = 0  # of torch; 0: as many as it takes by itself
    bf16: bool = False  # autocast
    channels_last: bool = False
    tf32: bool = False  # matrix products of a GPU in TF32, as its convolutions are by torch's own choice
    processes: Positive = 1  # that share every batch; as many as torchrun, or --processes, has started
    compile: bool = False  # the training step, by torch.compile; again after each change of the network

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def on_cuda(self) -> bool:
        return self.device.partition(":")[0] == "cuda"

    def prepare(self) -> torch.device:
        """Set up the process as the outcome or the time of a run depends on it; returns the device."""
        device = usable_device(self.device)
        if device.type == "cpu":
            keep_freed_memory()
        if self.threads:
            torch.set_num_threads(self.threads)
        if device.type == "cuda":
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
            if self.tf32:
                torch.set_float32_matmul_precision("high")
        return device


def usable_device(name: str) -> torch.device:
    """The device of that name; refuses one that cannot compute here."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise MeristemError(f"the device {name!r} cannot be used here: {reason}") from None
    return device


def compiled(model: Network) -> Network:
    """The model compiled for its present sizes; trouble of the compiler (there may be none here) is one sentence."""
    torch.compiler.reset()  # forgets the sizes it had before; otherwise torch soon gives up compiling
    network = torch.compile(model, dynamic=False)

    def call(*inputs: Any) -> Any:
        try:
            return network(*inputs)
        except Exception as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            reason = " ".join(str(error).split("\n")[:2]).strip()
            raise MeristemError(f"torch cannot compile this model here ({reason}); leave out compile") from None

    return call
