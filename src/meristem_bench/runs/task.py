"""Tasks: the loss of a model's outputs, and the metrics people look at."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.errors import MeristemError


class Task(Protocol):
    """A loss, and metrics made of sums.

    ``tally`` gives a vector that can be added up over batches; ``metrics`` reads the sum. So a metric that is no mean
    over samples (intersection over union, perplexity) is exact whatever the batches are.
    """

    @property
    def headline(self) -> str:
        """The metric that is shown; `task_metric.py` knows how by its name, and takes it for a share if it does not."""
        ...

    def loss(self, outputs: Any, targets: Tensor) -> Tensor: ...

    def tally(self, outputs: Any, targets: Tensor) -> Tensor: ...

    def metrics(self, tally: Tensor) -> dict[str, float]: ...


@dataclass(frozen=True)
class Classification:
    """One class per sample: cross entropy, and the share of samples that are classified right.

    ``top``: a sample also counts as right when its class is among the so many likeliest ones; the metric of 1 is
    ``accuracy``, that of 5 is ``top5``.
    """

    label_smoothing: float = 0.0
    headline: str = "accuracy"
    top: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not self.top or min(self.top) < 1 or len(set(self.top)) < len(self.top):
            raise MeristemError(f"top must be different numbers of at least 1, got {self.top}")

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        scores = _scores(outputs, targets).float()  # under autocast they come in half precision
        return F.cross_entropy(scores, targets, label_smoothing=self.label_smoothing)

    def tally(self, outputs: Any, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(_scores(outputs, targets).float(), targets, reduction="sum")
        right = [_right(outputs, targets, among).to(loss) for among in self.top]
        return _summable(loss, *right, loss.new_tensor(len(targets)))

    def metrics(self, tally: Tensor) -> dict[str, float]:
        loss, *right, count = tally.tolist()
        shares = {"accuracy" if k == 1 else f"top{k}": hits / count for k, hits in zip(self.top, right, strict=True)}
        return {"loss": loss / count, **shares}


def _right(outputs: Tensor, targets: Tensor, among: int) -> Tensor:
    """How many samples have their class among the likeliest; among all there are, every one has."""
    if among == 1:
        return (outputs.argmax(1) == targets).sum()
    likeliest = outputs.topk(min(among, outputs.shape[1]), dim=1).indices
    return (likeliest == targets[:, None]).sum()


@dataclass(frozen=True)
class Segmentation:
    """One class per pixel: cross entropy, and how far predicted and labelled regions agree.

    Outputs are ``[N, classes, H, W]`` and targets ``[N, H, W]``; pixels with the label ``ignore`` do not count.
    ``miou`` is the mean over the classes of intersection / union, of all pixels of the split together; a class that is
    neither in the targets nor in the predictions of the split has no union and is left out.
    """

    classes: int
    ignore: int = 255
    headline: str = "miou"

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """The mean over the pixels that count; 0 if there are none."""
        self._check(outputs, targets)
        return self._losses(outputs, targets).sum() / (targets != self.ignore).sum().clamp(min=1)

    def tally(self, outputs: Any, targets: Tensor) -> Tensor:
        """Sum of losses, number of pixels, and the pixels of each target class (row) by predicted class."""
        self._check(outputs, targets)
        counted = targets != self.ignore
        cells = targets[counted] * self.classes + outputs.argmax(1)[counted]
        confusion = torch.bincount(cells, minlength=self.classes**2).cpu().double()
        loss = self._losses(outputs, targets).cpu().double().sum()
        return torch.cat([_summable(loss, counted.sum()), confusion])

    def metrics(self, tally: Tensor) -> dict[str, float]:
        loss, count = tally[:2].tolist()
        confusion = tally[2:].view(self.classes, self.classes)
        right = confusion.diag()
        union = confusion.sum(0) + confusion.sum(1) - right
        agreement = right[union > 0] / union[union > 0]
        return {
            "loss": loss / max(count, 1),
            "miou": agreement.sum().item() / max(len(agreement), 1),
            "pixel_accuracy": right.sum().item() / max(count, 1),
        }

    def _check(self, outputs: Any, targets: Tensor) -> None:
        channels = _scores(outputs, targets, self.ignore).shape[1]
        if channels != self.classes:
            raise MeristemError(f"the model has {channels} outputs per pixel, but there are {self.classes} classes")

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """One per pixel; summed up afterwards, because on a GPU torch's own sum over pixels is not repeatable."""
        return F.cross_entropy(outputs.float(), targets, ignore_index=self.ignore, reduction="none")


@dataclass(frozen=True)
class LanguageModel:
    """The next word at every place of a text: cross entropy per word, and its exponential over all words of a split.

    Outputs are ``[B, T, vocabulary]`` and targets ``[B, T]``; places with the target ``ignore`` do not count.
    """

    ignore: int = -100
    headline: str = "perplexity"

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """The mean over the words."""
        return F.cross_entropy(self._rows(outputs, targets), targets.flatten(), ignore_index=self.ignore)

    def tally(self, outputs: Any, targets: Tensor) -> Tensor:
        losses = F.cross_entropy(
            self._rows(outputs, targets), targets.flatten(), ignore_index=self.ignore, reduction="none"
        )
        return _summable(losses.cpu().double().sum(), (targets != self.ignore).sum())

    def metrics(self, tally: Tensor) -> dict[str, float]:
        loss = tally[0] / tally[1]
        return {"loss": loss.item(), "perplexity": loss.exp().item()}

    def _rows(self, outputs: Any, targets: Tensor) -> Tensor:
        """One row of scores for each target."""
        if isinstance(outputs, Tensor) and outputs.shape[:-1] != targets.shape:
            expected = _shape((*targets.shape, "words"))
            raise MeristemError(f"the model returned outputs of shape {_shape(outputs.shape)}, expected {expected}")
        rows = outputs.flatten(0, -2).float() if isinstance(outputs, Tensor) else outputs
        return _scores(rows, targets.flatten(), self.ignore)


@dataclass(frozen=True)
class ByteLanguageModel(LanguageModel):
    """The next byte at every place of a text, in bits: cross entropy to the base of 2."""

    headline: str = "bits_per_byte"

    def metrics(self, tally: Tensor) -> dict[str, float]:
        loss = (tally[0] / tally[1]).item()
        return {"loss": loss, "bits_per_byte": loss / math.log(2)}


def _scores(outputs: Any, targets: Tensor, ignore: int = -100) -> Tensor:
    """The outputs, if they are one score per class for every target; torch would complain in its own terms."""
    if not isinstance(outputs, Tensor):
        raise MeristemError(
            f"the model returned a {type(outputs).__name__}, but one tensor with a score for each class is needed; "
            f"give a model that returns only that"
        )
    if targets.is_floating_point():  # a share for each class, which torch takes too
        return outputs
    if targets.dtype not in (torch.int64, torch.uint8):  # those that torch takes for classes
        raise MeristemError(f"labels are of type {targets.dtype}, but classes are counted in torch.int64: use .long()")
    expected = (len(targets), "classes", *targets.shape[1:])
    if outputs.dim() != len(expected) or (outputs.shape[0], *outputs.shape[2:]) != targets.shape:
        raise MeristemError(f"the model returned outputs of shape {_shape(outputs.shape)}, expected {_shape(expected)}")
    least, most = (int(value) for value in torch.where(targets == ignore, 0, targets).aminmax())
    if least < 0:
        raise MeristemError(f"a label is {least}, but labels are counted from 0; only {ignore} is left out of account")
    if most >= outputs.shape[1]:
        raise MeristemError(
            f"a label is {most}, but the model has {outputs.shape[1]} outputs, for labels from 0 to "
            f"{outputs.shape[1] - 1}; give it as many outputs as there are classes"
        )
    return outputs


def _summable(*numbers: Tensor) -> Tensor:
    """A tally of sums. On the CPU, because not every device knows double precision."""
    return torch.stack([number.cpu().double() for number in numbers])


def _shape(sizes: Iterable[int | str]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
