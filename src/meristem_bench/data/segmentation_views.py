"""What a segmentation network sees of one image and its label map: both are scaled, cropped and mirrored together.

Labels are never mixed: a pixel of the resized map has the label of the pixel its centre lies in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem_bench.data.colour import normalised, unchanged
from meristem_bench.data.images import Photo, Pixels

IGNORED = 255  # the label of pixels that do not count


@dataclass(frozen=True)
class SegmentationTrainView:
    """A random ``size`` x ``size`` part of image and labels at a random scale, mirrored half the time.

    What is smaller than that is padded on the right and below with the mean colour and ``IGNORED``.
    """

    size: int = 513
    least_scale: float = 0.5
    most_scale: float = 2.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"the size of an image must be at least 1, got {self.size}")
        if not 0 < self.least_scale <= self.most_scale:
            raise ValueError(f"scales must be more than 0 and in order, got {self.least_scale} to {self.most_scale}")

    def __call__(self, photo: Photo, labels: Pixels, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        scale = rng.uniform(self.least_scale, self.most_scale)
        width, height = (max(1, round(side * scale)) for side in photo.size)
        left, upper = (int(rng.integers(max(0, side - self.size) + 1)) for side in (width, height))
        return _crop(photo, labels, (width, height), (left, upper), self.size, mirrored=bool(rng.random() < 0.5))


@dataclass(frozen=True)
class SegmentationWholeView:
    """The whole image and labels, padded to ``size`` x ``size``; larger ones are resized so that the longer side fits.

    No image of PASCAL VOC is larger than 500, so with 513 all pixels are judged as they were labelled. With less, for
    short runs, the resized label maps are what is judged: such results compare only with each other.
    """

    size: int = 513

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"the size of an image must be at least 1, got {self.size}")

    def __call__(self, photo: Photo, labels: Pixels) -> tuple[Tensor, Tensor]:
        scale = min(1.0, self.size / max(photo.size))
        width, height = (max(1, round(side * scale)) for side in photo.size)
        return _crop(photo, labels, (width, height), (0, 0), self.size)


def _crop(
    photo: Photo,
    labels: Pixels,
    resized: tuple[int, int],
    corner: tuple[int, int],
    size: int,
    mirrored: bool = False,
) -> tuple[Tensor, Tensor]:
    """The part at ``corner`` of image and labels as resized; only that part is ever resampled."""
    wide, high = (min(size, side - start) for side, start in zip(resized, corner, strict=True))
    x_scale, y_scale = (before / after for before, after in zip(photo.size, resized, strict=True))
    left, upper = corner
    box = (left * x_scale, upper * y_scale, (left + wide) * x_scale, (upper + high) * y_scale)
    pixels = photo.resized(box, (wide, high))
    columns = _sources(left, wide, photo.size[0], resized[0])
    rows = _sources(upper, high, photo.size[1], resized[1])
    cropped_labels = labels[rows[:, None], columns]
    image = torch.zeros(3, size, size)  # normalised: 0 is the mean colour
    target = torch.full((size, size), IGNORED, dtype=torch.int64)
    image[:, :high, :wide] = normalised(unchanged())(pixels)
    target[:high, :wide] = torch.from_numpy(cropped_labels.astype(np.int64))
    return (image.flip(2), target.flip(1)) if mirrored else (image, target)


def _sources(start: int, count: int, before: int, after: int) -> NDArray[np.int64]:
    """The source pixel that the centre of each resized pixel lies in; integer arithmetic, so never off by one."""
    return (2 * np.arange(start, start + count, dtype=np.int64) + 1) * before // (2 * after)
