"""Image files, decoded with Pillow, which only this module uses; it is imported when the first image is read.

Formats are recognised by content, never by their name, and only as JPEG, PNG, WebP or BMP: Pillow's other readers
are never used. Pixels are taken as they are stored: an orientation noted in EXIF data is not applied, as in the
programs whose results are compared with.
"""

from __future__ import annotations

import importlib
import io
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Box = tuple[float, float, float, float]  # left, upper, right, lower
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP")
# The largest image of ImageNet has about 60 million pixels. Beyond the limit a small file could fill the memory.
_MOST_PIXELS = 100_000_000
_MOST_BYTES = 512 << 20
# Coarse and quick steps of shrinking stop at this multiple of the wanted size; the rest is resampled finely.
_GAP = 2.0


@dataclass(frozen=True, eq=False)
class Photo:
    """A colour image in a file: its size is known, its pixels are decoded when asked for."""

    path: str
    size: tuple[int, int]  # width and height
    content: bytes = field(repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Photo:
        """Everything but the pixels."""
        content = _read(path)
        with _decoding(path):
            return cls(os.fspath(path), _opened(path, content).size, content)

    def resized(self, box: Box, size: tuple[int, int], quick: bool = False) -> Pixels:
        """The part in ``box`` as ``[height, width, 3]``, resampled to ``size`` by area-aware bilinear interpolation.

        What lies just outside the box has a part in the outermost pixels, as if the whole image had been resampled and
        then cut. ``quick``: parts much larger than ``size`` are shrunk by whole factors first, in the decoder where the
        format permits; that is hard to see, but not the same to the last bit.
        """
        with _decoding(self.path):
            image = _opened(self.path, self.content)
            if quick:
                box = _shrunk_in_decoder(image, box, size)
            left, upper, right, lower = box
            inside = (left, upper, min(right, image.width), min(lower, image.height))  # in spite of rounding
            return np.asarray(_rgb(image).resize(size, _pillow().Resampling.BILINEAR, inside, _GAP if quick else None))


def label_map(path: str | os.PathLike[str]) -> Pixels:
    """The numbers ``[height, width]`` in a greyscale or palette image of at most 8 bits: no colours, no conversion."""
    content = _read(path)
    with _decoding(path):
        image = _opened(path, content)
        mode, labels = image.mode, np.asarray(image)
    if mode not in ("P", "L"):
        raise ValueError(f"{path} is no label map: expected a palette or 8-bit greyscale image, got mode {mode}")
    return labels


def check_pillow() -> None:
    """Raise if Pillow is not installed: better before a run than in it."""
    _pillow()


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise ValueError("reading images needs Pillow: pip install 'meristem[images]'") from None


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    if not content:
        raise ValueError(f"{path} is empty; replace it or remove it")
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path} has more than {_MOST_BYTES >> 20} MiB, which is too large for an image")
    return content


class _TooLargeError(Exception):
    pass


@contextmanager
def _decoding(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever the decoder raises into one sentence, and silence its warnings (odd EXIF data, say)."""
    pillow = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (_TooLargeError, pillow.DecompressionBombError):
        limit = f"the limit is {_MOST_PIXELS // 10**6} million"
        raise ValueError(f"{path} has too many pixels to be decoded safely: {limit}; make it smaller") from None
    except pillow.UnidentifiedImageError:
        raise ValueError(f"{path} is not an image (JPEG, PNG, WebP or BMP); replace it or remove it") from None
    except Exception as error:  # a damaged file can raise almost anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(f"{path} is damaged ({reason}); replace it or remove it") from None


def _opened(path: str | os.PathLike[str], content: bytes) -> Any:
    """A Pillow image whose pixels are not decoded yet."""
    image = _pillow().open(io.BytesIO(content), formats=_FORMATS)
    if math.prod(image.size) > _MOST_PIXELS:
        raise _TooLargeError(path)
    return image


def _shrunk_in_decoder(image: Any, box: Box, size: tuple[int, int]) -> Box:
    """Let a JPEG be decoded at a half, a quarter or an eighth if that is enough; return the box at that scale."""
    width, height = image.size
    minimum = (_GAP * size[0] * width / (box[2] - box[0]), _GAP * size[1] * height / (box[3] - box[1]))
    drafted = image.draft(image.mode, (math.ceil(minimum[0]), math.ceil(minimum[1])))
    if drafted is None:  # another format
        return box
    right, lower = drafted[1][2:]  # of the whole image
    x_scale, y_scale = right / width, lower / height
    return (box[0] * x_scale, box[1] * y_scale, box[2] * x_scale, box[3] * y_scale)


def _rgb(image: Any) -> Any:
    """Three colours of 8 bits, from whatever a file holds; transparency is left out."""
    if image.mode.startswith("I"):  # 16 bits of grey, which Pillow would cut off at 255
        image = _pillow().fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    return image.convert("RGB")
