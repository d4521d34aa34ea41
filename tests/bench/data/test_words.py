"""Words: files as they come, every word of an evaluation once, chunks that follow one another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.data.data_files import SHARED
from meristem_bench.data.text_files import NOT_COUNTED
from meristem_bench.data.words import Words, word_files

TEXTS = {"train": " the cat sat \n the dog <unk> \n", "valid": " the cat \n", "test": " a dog sat \n\n"}


def write(folder: Path, layout: str = "ptb.{}.txt", **changes: str | bytes | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**TEXTS, **changes}.items():
        if text is not None:
            (folder / layout.format(name)).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def texts(words: Words) -> dict[str, str]:
    return {split: " ".join(words.vocabulary[number] for number in found) for split, found in words.splits.items()}


def stream(count: int, unroll: int) -> Words:
    """A text in which every word is its own place; 0 ends a sentence."""
    numbers = torch.arange(1, count + 1)
    vocabulary = ("<eos>", *map(str, numbers.tolist()))
    return Words(vocabulary, {"train": numbers, "validation": numbers, "test": numbers}, unroll)


@pytest.mark.parametrize("layout", ["ptb.{}.txt", "wiki.{}.tokens", "{}.txt"])
def test_a_line_ends_a_sentence_and_strange_words_are_unknown(tmp_path: Path, layout: str) -> None:
    words = word_files(write(tmp_path, layout), unroll=2)
    assert words.vocabulary == ("the", "cat", "sat", "<eos>", "dog", "<unk>")
    assert words.classes == 6
    assert texts(words) == {
        "train": "the cat sat <eos> the dog <unk> <eos>",
        "validation": "the cat <eos>",
        "test": "<unk> dog sat <eos> <eos>",
    }


def test_an_end_that_is_written_is_not_written_twice(tmp_path: Path) -> None:
    words = word_files(write(tmp_path, train="the cat <eos>\n\n<unk> sat\n"), unroll=1)
    assert texts(words)["train"] == "the cat <eos> <eos> <unk> sat <eos>"


def test_the_archive_of_the_penn_treebank_is_found_as_it_unpacks(tmp_path: Path) -> None:
    write(tmp_path / "simple-examples" / "data")
    assert word_files(tmp_path, unroll=1).classes == 6


def test_fewer_training_words_have_the_same_vocabulary(tmp_path: Path) -> None:
    words = word_files(write(tmp_path), unroll=1, samples=3)
    assert texts(words)["train"] == "the cat sat"
    assert words.classes == 6
    with pytest.raises(ValueError, match="there are 8 training words, not samples=9"):
        word_files(tmp_path, unroll=1, samples=9)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no ptb\.train\.txt or wiki\.train\.tokens or train\.txt; give the"):
        word_files(tmp_path, unroll=1)
    with pytest.raises(ValueError, match=r"ptb\.valid\.txt is missing; train, valid and test are needed"):
        word_files(write(tmp_path / "part", valid=None), unroll=1)
    with pytest.raises(ValueError, match=r"holds ptb\.train\.txt and train\.txt; give a folder in which"):
        word_files(write(write(tmp_path / "both"), "{}.txt"), unroll=1)
    with pytest.raises(ValueError, match=r"ptb\.train\.txt is damaged or no text in UTF-8"):
        word_files(write(tmp_path / "binary", train=b"\xff\xfe\x00"), unroll=1)
    with pytest.raises(ValueError, match=r"ptb\.test\.txt has no words; get it again"):
        word_files(write(tmp_path / "empty", test=" \n"), unroll=1)
    with pytest.raises(ValueError, match=r"ptb\.test\.txt has the word 'a', which the training words and <unk> do not"):
        word_files(write(tmp_path / "strange", train="the cat sat\n the dog\n"), unroll=1)
    with pytest.raises(ValueError, match="unroll must be at least 1 word, got 0"):
        word_files(write(tmp_path / "whole"), unroll=0)


def test_chunks_follow_one_another_in_every_stream_and_each_word_is_told_from_the_one_before() -> None:
    words = stream(103, unroll=7)
    batches = list(words.train(4, torch.Generator()))
    assert len(batches) == words.steps(4) == 103 // 4 // 7
    assert all(inputs.shape == targets.shape == (4, 7) for inputs, targets in batches)
    inputs, targets = (torch.cat(parts, dim=1) for parts in zip(*batches, strict=True))
    assert torch.equal(inputs, targets - 1)
    for number, row in enumerate(targets):
        assert row.tolist() == list(range(25 * number + 1, 25 * number + 22))
    assert words.example[0].tolist() == [[0, 1, 2, 3, 4, 5, 6]]


def test_too_few_words_for_a_step() -> None:
    with pytest.raises(ValueError, match="4 streams of 30 words are more than the 103 training words"):
        stream(103, unroll=30).steps(4)


@pytest.mark.parametrize(("count", "batch", "unroll"), [(103, 4, 7), (100, 4, 5), (5, 20, 3), (41, 20, 2), (9, 1, 4)])
def test_an_evaluation_counts_every_word_once(count: int, batch: int, unroll: int) -> None:
    words = stream(count, unroll)
    batches = list(words.evaluate("test", batch))
    inputs, targets = (torch.cat(parts, dim=1) for parts in zip(*batches, strict=True))
    counted = targets != NOT_COUNTED
    assert targets[counted].tolist() == list(range(1, count + 1))
    assert torch.equal(inputs[counted], targets[counted] - 1)
    assert inputs.shape[0] == batch  # one state fits all chunks
    assert all(each.shape[1] == unroll for each, _ in batches[:-1])


@pytest.mark.parametrize(
    ("folder", "classes", "counts"),
    [("ptb", 10_000, [929_589, 73_760, 82_430]), ("wikitext-2", 33_278, [2_088_628, 217_646, 245_569])],
)
def test_the_real_sets_have_their_published_sizes(folder: str, classes: int, counts: list[int]) -> None:
    if not (SHARED / folder).is_dir():
        pytest.skip(f"{folder} does not lie beside the repository")
    words = word_files(SHARED / folder, unroll=35)
    assert words.classes == classes
    assert [len(found) for found in words.splits.values()] == counts
