"""Idx files: read as they are published, whatever their headers claim."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from meristem_bench.data.idx import idx_images

Bytes = np.ndarray[Any, Any]


def idx(content: Bytes) -> bytes:
    return bytes((0, 0, 8, content.ndim)) + struct.pack(f">{content.ndim}I", *content.shape) + content.tobytes()


def random_images(count: int) -> Bytes:
    return np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def written(folder: Path, packed: bool = False, dot: bool = False) -> Path:
    """Six training images and three of the test, of the labels 0, 1, 2, ..."""
    folder.mkdir(exist_ok=True)
    for part, count in (("train", 6), ("t10k", 3)):
        for kind, content in (("images", random_images(count)), ("labels", np.arange(count, dtype=np.uint8))):
            name = f"{part}-{kind}{'.' if dot else '-'}idx{content.ndim}-ubyte"
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(content)))
            else:
                (folder / name).write_bytes(idx(content))
    return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", [False, True])
def test_all_spellings_are_read(tmp_path: Path, packed: bool, dot: bool) -> None:
    splits = idx_images(written(tmp_path, packed, dot), held_out=2)
    assert {name: images.shape for name, (images, _) in splits.items()} == {
        "train": (4, 1, 28, 28),
        "validation": (2, 1, 28, 28),
        "test": (3, 1, 28, 28),
    }
    assert [labels.tolist() for _, labels in splits.values()] == [[0, 1, 2, 3], [4, 5], [0, 1, 2]]
    assert all(images.dtype == torch.float32 and labels.dtype == torch.int64 for images, labels in splits.values())


def test_pixels_are_measured_by_the_training_pixels(tmp_path: Path) -> None:
    splits = idx_images(written(tmp_path), held_out=0)
    assert list(splits) == ["train", "test"]
    train = splits["train"][0].double()
    assert abs(train.mean()) < 1e-6
    assert abs(train.std(correction=0) - 1) < 1e-6
    shares = random_images(6) / 255
    wanted = (random_images(3)[:, None] / 255 - shares.mean()) / shares.std()
    assert torch.allclose(splits["test"][0].double(), torch.from_numpy(wanted), atol=1e-5)


def test_padding_is_black_and_changes_nothing_inside(tmp_path: Path) -> None:
    plain, padded = (idx_images(written(tmp_path), held_out=1, pad=pad)["train"][0] for pad in (0, 2))
    assert padded.shape == (5, 1, 32, 32)
    assert torch.equal(padded[..., 2:-2, 2:-2], plain)
    darkest = plain.flatten()[torch.from_numpy(random_images(6)[:5].flatten() == 0)]
    assert torch.equal(padded[:, :, :2].unique(), darkest.unique())
    with pytest.raises(ValueError, match="pad must be at least 0, got -1"):
        idx_images(tmp_path, pad=-1)


def test_a_file_that_was_unpacked_under_its_packed_name_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, packed=True) / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()))
    assert len(idx_images(tmp_path, held_out=1)["train"][1]) == 5


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere holds no train-images-idx3-ubyte, plain or with \.gz; fetch it"):
        idx_images(tmp_path / "nowhere")
    (written(tmp_path) / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ValueError, match="holds no t10k-labels-idx1-ubyte"):
        idx_images(tmp_path, held_out=1)


def test_more_than_there_is_cannot_be_held_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="6 training images: 5000 of them cannot be held out"):
        idx_images(written(tmp_path))


def header(*sizes: int, kind: int = 8) -> bytes:
    return bytes((0, 0, kind, len(sizes))) + struct.pack(f">{len(sizes)}I", *sizes)


IMAGES = idx(random_images(6))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an idx file of bytes in 3 dimensions"),
        (b"\0\0\x08", "is not an idx file"),
        (b"<!DOCTYPE html><html>not found", "is not an idx file"),
        (header(6, 28, 28, kind=0x0D) + IMAGES[16:], "is not an idx file of bytes"),
        (idx(np.zeros(6, np.uint8)), "is not an idx file of bytes in 3 dimensions"),
        (header(6, 32, 32) + bytes(6 * 1024), "says its images have 32 x 32 pixels, expected 28 x 28"),
        (header(0, 28, 28), "says it has 0 samples"),
        (header(2**32 - 1, 28, 28) + IMAGES[16:], "says it has 4294967295 samples, expected 1 to"),
        (header(100_000, 28, 28) + IMAGES[16:], "says it has 78400000 bytes of data, but has 4704"),
        (IMAGES[:-1], "says it has 4704 bytes of data, but has 4703"),
        (IMAGES + b"x", "says it has 4704 bytes of data, but has more"),
        (idx(random_images(5)), r"has 5 images, but .*train-labels-idx1-ubyte has 6 labels"),
        (idx(np.full((6, 28, 28), 7, np.uint8)), "are all of one grey"),
    ],
)
def test_a_header_is_not_believed(tmp_path: Path, content: bytes, message: str, packed: bool) -> None:
    path = written(tmp_path) / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(ValueError, match=message) as told:
        idx_images(tmp_path, held_out=1)
    assert str(told.value).isprintable()


def test_a_label_that_is_none_is_named(tmp_path: Path) -> None:
    path = written(tmp_path) / "t10k-labels-idx1-ubyte"
    path.write_bytes(idx(np.array([0, 10, 2], dtype=np.uint8)))
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte has a label 10, expected numbers from 0 to 9"):
        idx_images(tmp_path, held_out=1)


def test_what_a_packed_file_grows_to_is_not_read(tmp_path: Path) -> None:
    """A thousandth of the size, packed: reading stops one byte after what the header says."""
    path = written(tmp_path, packed=True) / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(IMAGES + bytes(1 << 24)))
    with pytest.raises(ValueError, match="but has more"):
        idx_images(tmp_path, held_out=1)


@pytest.mark.parametrize("damage", ["short", "torn", "no sum"])
def test_a_damaged_packed_file_is_named(tmp_path: Path, damage: str) -> None:
    path = written(tmp_path, packed=True) / "train-images-idx3-ubyte.gz"
    good = path.read_bytes()
    bad = {"short": good[:-20], "torn": good[:40] + bytes(40) + good[80:], "no sum": good[:-8] + bytes(8)}[damage]
    path.write_bytes(bad)
    with pytest.raises(
        ValueError, match=r"train-images-idx3-ubyte\.gz is damaged: it cannot be unpacked; fetch it again"
    ):
        idx_images(tmp_path, held_out=1)
