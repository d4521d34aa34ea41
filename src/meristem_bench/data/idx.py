"""MNIST and Fashion-MNIST from their idx files, plain or gzipped, read without trusting what their headers say."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem_bench.data.arrays import Splits, split_validation

_SIDE, _CLASSES = 28, 10
_MOST_SAMPLES = 1 << 18  # the official files have 60 000 at most
_BYTE = 0x08  # the type of element the files have


def idx_images(folder: str | Path, held_out: int = 5000, pad: int = 0) -> Splits:
    """Images ``[N, 1, 28, 28]`` and labels ``[N]``; the last ``held_out`` training images are ``validation``.

    With 0 all are trained on and there is no validation. Pixels are shifted and scaled by the mean and the deviation of
    all pixels of the training file. ``pad`` black pixels are put around each image: 2 makes it 32 pixels wide.
    """
    where = Path(folder)
    if pad < 0:
        raise ValueError(f"pad must be at least 0, got {pad}")
    pixels, labels = _read_pair(where, "train")
    mean, deviation = _mean_and_deviation(pixels)
    if not deviation:
        raise ValueError(f"the training images in {where} are all of one grey; fetch them again")
    test_pixels, test_labels = _read_pair(where, "t10k")
    train, test = (
        F.pad(images, (pad,) * 4).unsqueeze(1).float().div_(255).sub_(mean).div_(deviation)
        for images in (pixels, test_pixels)
    )
    return split_validation(where, (train, labels), (test, test_labels), held_out)


def _mean_and_deviation(pixels: Tensor) -> tuple[float, float]:
    """Of the pixels as shares of the largest value; from counts, so that no rounding depends on their order."""
    counts = torch.bincount(pixels.flatten(), minlength=256).double()
    values = torch.arange(256).double() / 255
    mean = ((counts * values).sum() / counts.sum()).item()
    return mean, math.sqrt(((counts * (values - mean) ** 2).sum() / counts.sum()).item())


def _read_pair(where: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images as bytes ``[N, 28, 28]``, and labels ``[N]``."""
    images_file, labels_file = _find(where, f"{part}-images", 3), _find(where, f"{part}-labels", 1)
    images, labels = _read(images_file, (_SIDE, _SIDE)), _read(labels_file, ())
    if len(images) != len(labels):
        raise ValueError(f"{images_file} has {len(images)} images, but {labels_file} has {len(labels)} labels")
    if labels.max() >= _CLASSES:
        raise ValueError(f"{labels_file} has a label {int(labels.max())}, expected numbers from 0 to {_CLASSES - 1}")
    return images, labels.long()


def _find(where: Path, stem: str, dimensions: int) -> Path:
    for name in (f"{stem}-idx{dimensions}-ubyte", f"{stem}.idx{dimensions}-ubyte"):
        for path in (where / name, where / f"{name}.gz"):
            if path.is_file():
                return path
    raise ValueError(
        f"{where} holds no {stem}-idx{dimensions}-ubyte, plain or with .gz; "
        f"fetch it with: meristem data mnist DIR, or meristem data fashion-mnist DIR"
    )


def _read(path: Path, sample: tuple[int, ...]) -> Tensor:
    """All samples of a file, each of the shape ``sample``."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"  # the name does not say: some browsers unpack and keep it
            raw.seek(0)
            if not packed:
                return _samples(path, raw, sample)
            with gzip.GzipFile(fileobj=raw) as unpacked:
                return _samples(path, unpacked, sample)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ValueError(f"{path} is damaged: it cannot be unpacked; fetch it again") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None


def _samples(path: Path, stream: IO[bytes] | gzip.GzipFile, sample: tuple[int, ...]) -> Tensor:
    """The samples in a stream; never takes more memory than the largest file allowed, however much a gzip expands."""
    length = 4 + 4 * (1 + len(sample))
    header = stream.read(length)
    if len(header) < length or header[:4] != bytes((0, 0, _BYTE, 1 + len(sample))):
        raise ValueError(f"{path} is not an idx file of bytes in {1 + len(sample)} dimensions")
    count, *shape = struct.unpack(f">{1 + len(sample)}I", header[4:])
    if tuple(shape) != sample:
        raise ValueError(
            f"{path} says its images have {' x '.join(map(str, shape))} pixels, expected {_SIDE} x {_SIDE}"
        )
    if not 0 < count <= _MOST_SAMPLES:
        raise ValueError(f"{path} says it has {count} samples, expected 1 to {_MOST_SAMPLES}")
    expected = count * math.prod(sample)
    content = stream.read(expected + 1)  # one more: there must be nothing after the last
    if len(content) != expected:
        actual = "more" if len(content) > expected else f"{len(content)}"
        raise ValueError(f"{path} says it has {expected} bytes of data, but has {actual}; fetch it again")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(count, *sample)
