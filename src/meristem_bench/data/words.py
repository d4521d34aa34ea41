"""Text as a stream of words: the three files of Penn Treebank or WikiText-2 as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem_bench.data.text_files import NOT_COUNTED, find_text_files

END = "<eos>"  # the word at the end of every line
UNKNOWN = "<unk>"


@dataclass(frozen=True)
class Words:
    """Streams of words, in chunks of ``unroll``: a network reads them in order and carries its state along.

    A batch is ``[streams, words]``. The text of a split is cut into as many streams as a batch has rows; every word is
    predicted from those before it, the first one from the end of a sentence. Nothing is random here.
    """

    vocabulary: tuple[str, ...]
    splits: Mapping[str, Tensor]  # the words as their numbers in the vocabulary, in order
    unroll: int

    def __post_init__(self) -> None:
        if self.unroll < 1:
            raise ValueError(f"unroll must be at least 1 word, got {self.unroll}")

    @property
    def classes(self) -> int:
        return len(self.vocabulary)

    @property
    def example(self) -> tuple[Tensor, ...]:
        """One stream of as many words as a training step sees."""
        return (self._shifted(self.splits["train"])[: self.unroll].view(1, -1).clone(),)

    def has(self, split: str) -> bool:
        return split in self.splits

    def steps(self, batch: int) -> int:
        """How many training steps an epoch has."""
        steps = len(self.splits["train"]) // batch // self.unroll
        if not steps:
            raise ValueError(
                f"{batch} streams of {self.unroll} words are more than the {len(self.splits['train'])} training words"
            )
        return steps

    def train(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """All chunks in their order. What fills no whole chunk of every stream is left out: all steps cost the same."""
        targets = self.splits["train"]
        length = len(targets) // batch
        inputs, targets = (words[: batch * length].view(batch, length) for words in (self._shifted(targets), targets))
        for start in range(0, self.steps(batch) * self.unroll, self.unroll):
            yield inputs[:, start : start + self.unroll], targets[:, start : start + self.unroll]

    def evaluate(self, split: str, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every word of a split once: the last streams are padded with targets that do not count.

        The last chunk may be shorter than the others.
        """
        targets = self.splits[split]
        length = -(-len(targets) // batch)
        missing = (0, batch * length - len(targets))
        inputs = F.pad(self._shifted(targets), missing, value=self._end).view(batch, length)
        targets = F.pad(targets, missing, value=NOT_COUNTED).view(batch, length)
        for start in range(0, length, self.unroll):
            yield inputs[:, start : start + self.unroll], targets[:, start : start + self.unroll]

    @property
    def _end(self) -> int:
        return self.vocabulary.index(END)

    def _shifted(self, targets: Tensor) -> Tensor:
        """The word before each word."""
        return torch.cat([targets.new_tensor([self._end]), targets[:-1]])


def word_files(folder: str | Path, unroll: int, samples: int = 0) -> Words:
    """The words of ``ptb.train.txt``, ``wiki.train.tokens`` or ``train.txt``, and of the two files beside it.

    The vocabulary is that of the training file; other words of the other files are ``<unk>``. ``samples`` is how many
    training words are used, from the first on; 0: all. The vocabulary is the same with all of them.
    """
    paths = find_text_files(Path(folder))
    texts = {split: _words(path) for split, path in paths.items()}
    vocabulary = tuple(dict.fromkeys(texts["train"]))
    numbers = {word: number for number, word in enumerate(vocabulary)}
    splits = {split: _numbered(text, numbers, paths[split]) for split, text in texts.items()}
    if samples > len(splits["train"]):
        raise ValueError(f"there are {len(splits['train'])} training words, not samples={samples}")
    return Words(vocabulary, {**splits, "train": splits["train"][: samples or None]}, unroll)


def _words(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is damaged or no text in UTF-8; get it again") from None
    words: list[str] = []
    for line in text.removesuffix("\n").split("\n"):
        words += line.split()
        if words[-1:] != [END] or not line.strip():
            words.append(END)
    if set(words) == {END}:
        raise ValueError(f"{path} has no words; get it again")
    return words


def _numbered(words: list[str], numbers: Mapping[str, int], path: Path) -> Tensor:
    unknown = numbers.get(UNKNOWN)
    foreign = next((word for word in words if word not in numbers), None)
    if foreign is not None and unknown is None:
        raise ValueError(f"{path} has the word {foreign!r}, which the training words and {UNKNOWN} do not cover")
    return torch.tensor([numbers.get(word, unknown) for word in words])
