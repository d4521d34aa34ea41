"""What a teacher adds to the loss: the network learns the answers of one that was trained before, too."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from meristem.control.text_settings import number
from meristem.cost.ledger import PRUNE
from meristem.errors import MeristemError


@dataclass(frozen=True)
class Distillation:
    """In ``stage`` the loss is (1 - ``weight``) of the own one and ``weight`` of the teacher's (Eq. Distillation).

    Outputs are scores of classes along dimension 1, as `torch.nn.functional.cross_entropy` takes them.
    """

    softness: float = number(4.0)
    weight: float = number(0.9)
    stage: str = PRUNE

    def __post_init__(self) -> None:
        if not (self.softness > 0 and 0 <= self.weight <= 1):
            raise MeristemError(
                f"a distillation needs a softness above 0 and a weight from 0 to 1, got {self.softness}, {self.weight}"
            )

    def loss(self, own: Tensor, outputs: Tensor, taught: Tensor) -> Tensor:
        """The loss to learn by, from the own loss and what the network and its teacher put out for the same inputs."""
        if outputs.dim() < 2 or outputs.shape != taught.shape:
            raise MeristemError(
                f"a teacher's outputs are compared class by class: expected one tensor [samples, classes, ...], got "
                f"{list(outputs.shape)} of the network and {list(taught.shape)} of its teacher"
            )
        classes = outputs.shape[1]
        scores, wanted = (
            each.float().movedim(1, -1).reshape(-1, classes) / self.softness for each in (outputs, taught)
        )
        distance = functional.kl_div(
            scores.log_softmax(1), wanted.log_softmax(1), reduction="batchmean", log_target=True
        )
        return (1 - self.weight) * own + self.weight * self.softness**2 * distance.to(own.dtype)
