"""Bytes: windows from anywhere in the text to train on, every byte of an evaluation once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meristem_bench.data.text_bytes import TextBytes, text_bytes
from meristem_bench.data.text_files import NOT_COUNTED


def counting(count: int, context: int, samples: int = 0) -> TextBytes:
    """A text in which every byte is its own place."""
    text = torch.arange(count, dtype=torch.uint8)
    return TextBytes({"train": text, "validation": text, "test": text}, context, samples)


def write(folder: Path, **texts: str) -> Path:
    for name, text in {"train": "abcdefghij", "valid": "klé", "test": "mnop", **texts}.items():
        (folder / f"wiki.{name}.tokens").write_bytes(text.encode())
    return folder


def test_the_files_are_read_as_they_are(tmp_path: Path) -> None:
    data = text_bytes(write(tmp_path), context=4)
    assert {split: bytes(text.tolist()).decode() for split, text in data.splits.items()} == {
        "train": "abcdefghij",
        "validation": "klé",
        "test": "mnop",
    }
    assert data.classes == 256
    assert data.example[0].tolist() == [list(b"abcd")]
    assert len(text_bytes(tmp_path, context=4, held_out=3).splits["validation"]) == 3


def test_windows_lie_anywhere_and_each_byte_is_told_from_the_one_before() -> None:
    data = counting(100, context=7)
    seen = set[int]()
    for _, generator in zip(range(40), [torch.Generator().manual_seed(0)] * 40, strict=True):
        for inputs, targets in data.train(4, generator):
            assert inputs.shape == targets.shape == (4, 7)
            assert inputs.dtype == targets.dtype == torch.int64
            assert torch.equal(inputs + 1, targets)
            assert all(row.diff().eq(1).all() for row in inputs)
            seen |= set(inputs[:, 0].tolist())
    assert seen == set(range(93))  # the last window ends with the last byte


def test_an_epoch_reads_as_many_bytes_as_it_is_told_from_all_of_the_text() -> None:
    assert counting(100, context=5).steps(4) == 5
    few = counting(100, context=5, samples=40)
    assert few.steps(4) == len(list(few.train(4, torch.Generator().manual_seed(0)))) == 2
    starts = [int(inputs[0, 0]) for inputs, _ in few.train(4, torch.Generator().manual_seed(1))]
    assert max(starts) > 40


def test_the_generator_alone_decides() -> None:
    data = counting(100, context=5)
    first, second = ([x for x, _ in data.train(4, torch.Generator().manual_seed(seed))] for seed in (3, 3))
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


@pytest.mark.parametrize(("count", "batch", "context"), [(100, 4, 7), (50, 4, 7), (29, 4, 7), (8, 3, 7), (3, 1, 2)])
def test_an_evaluation_counts_every_byte_but_the_first_once(count: int, batch: int, context: int) -> None:
    batches = list(counting(count, context).evaluate("test", batch))
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    counted = targets != NOT_COUNTED
    assert targets[counted].tolist() == list(range(1, count))
    assert torch.equal(inputs[counted] + 1, targets[counted])
    assert all(each.shape == (batch, context) for each, _ in batches[:-1])


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no ptb\.train\.txt"):
        text_bytes(tmp_path, context=4)
    write(tmp_path)
    with pytest.raises(ValueError, match="a window needs a context of at least 1 byte, got 0"):
        text_bytes(tmp_path, context=0)
    with pytest.raises(ValueError, match="the train text has 10 bytes, but at least 11 are needed"):
        text_bytes(tmp_path, context=10)
    with pytest.raises(ValueError, match=r"wiki\.valid\.tokens has 4 bytes, not held_out=5"):
        text_bytes(tmp_path, context=4, held_out=5)
    with pytest.raises(ValueError, match="the test text has 0 bytes, but at least 2 are needed"):
        text_bytes(write(tmp_path, test=""), context=4)
    with pytest.raises(ValueError, match="3 windows of 5 bytes are more than the 14 bytes of an epoch"):
        counting(100, context=5, samples=14).steps(3)
