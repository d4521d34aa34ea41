"""Text as a stream of bytes: windows at random places of it to train on, all of it to evaluate on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from meristem_bench.data.text_files import NOT_COUNTED, find_text_files


@dataclass(frozen=True)
class TextBytes:
    """Windows of ``context`` bytes, each byte predicted from those before it in its window.

    A batch is ``[windows, context]``. An epoch of training reads ``samples`` bytes (0: as many as the text has), in
    windows at random places of the whole text: a short epoch is not the same short text every time.
    """

    splits: Mapping[str, Tensor]  # the bytes as torch.uint8, in order
    context: int
    samples: int = 0

    classes = 256

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError(f"a window needs a context of at least 1 byte, got {self.context}")
        for split, text in self.splits.items():
            least = self.context + 1 if split == "train" else 2  # the first byte of a text is predicted from nothing
            if len(text) < least:
                raise ValueError(f"the {split} text has {len(text)} bytes, but at least {least} are needed")

    @property
    def example(self) -> tuple[Tensor, ...]:
        """One window."""
        return (self.splits["train"][None, : self.context].long(),)

    def has(self, split: str) -> bool:
        return split in self.splits

    def steps(self, batch: int) -> int:
        """How many training steps an epoch has."""
        wanted = self.samples or len(self.splits["train"])
        steps = wanted // (batch * self.context)
        if not steps:
            raise ValueError(f"{batch} windows of {self.context} bytes are more than the {wanted} bytes of an epoch")
        return steps

    def train(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch of windows, wherever the generator says."""
        text, places = self.splits["train"], torch.arange(self.context + 1)
        for _ in range(self.steps(batch)):
            starts = torch.randint(len(text) - self.context, (batch, 1), generator=generator)
            windows = text[starts + places].long()
            yield windows[:, :-1], windows[:, 1:]

    def evaluate(self, split: str, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every byte of a split but the first once; the last window is padded with targets that do not count."""
        text = self.splits[split].long()
        missing = (0, -(len(text) - 1) % self.context)
        inputs = F.pad(text[:-1], missing).view(-1, self.context)
        targets = F.pad(text[1:], missing, value=NOT_COUNTED).view(-1, self.context)
        yield from zip(torch.split(inputs, batch), torch.split(targets, batch), strict=True)


def text_bytes(folder: str | Path, context: int, samples: int = 0, held_out: int = 0) -> TextBytes:
    """The bytes of ``ptb.train.txt``, ``wiki.train.tokens`` or ``train.txt``, and of the two files beside it.

    ``held_out`` is how many bytes of the validation file are used, from the first on; 0: all.
    """
    paths = find_text_files(Path(folder))
    splits = {split: torch.from_numpy(np.fromfile(path, dtype=np.uint8)) for split, path in paths.items()}
    if held_out > len(splits["validation"]):
        raise ValueError(f"{paths['validation']} has {len(splits['validation'])} bytes, not held_out={held_out}")
    splits["validation"] = splits["validation"][: held_out or None]
    return TextBytes(splits, context, samples)
