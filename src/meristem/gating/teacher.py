"""A teacher: a copy of the full model as it was at one moment, which answers the inputs the model is trained on."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from meristem.errors import MeristemError
from meristem.gating.held_out import samples_in


class Teacher:
    """Made of the full model before anything is resized; it knows nothing until it has :meth:`learned`.

    ``samples`` counts those that it has answered since the last epoch: they are part of what training costs.
    """

    def __init__(self, model: nn.Module) -> None:
        self._copy = copy.deepcopy(model).eval().requires_grad_(False)
        self.ready = False
        self.samples = 0

    def learn(self, model: nn.Module) -> None:
        """Become what the model is now; it must have its full size."""
        sizes = {name: tensor.shape for name, tensor in self._copy.state_dict().items()}
        if sizes != {name: tensor.shape for name, tensor in model.state_dict().items()}:
            raise MeristemError(
                "a teacher is the full network, but this one is smaller when it shall begin to teach; start from "
                "FullNetwork() and prune after that"
            )
        self._copy.load_state_dict(model.state_dict())
        self.ready = True

    @torch.no_grad()
    def answer(self, *inputs: Any) -> Tensor:
        """What the teacher puts out for the same inputs: the tensor, or the first of several."""
        self.samples += samples_in(inputs)
        outputs = self._copy(*inputs)
        while isinstance(outputs, (tuple, list)):
            outputs = outputs[0]
        answer: Tensor = outputs
        return answer

    def state_dict(self) -> dict[str, Any]:
        return {"samples": self.samples, "weights": self._copy.state_dict() if self.ready else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.samples, self.ready = int(state["samples"]), state["weights"] is not None
        if self.ready:
            self._copy.load_state_dict(state["weights"])
