"""What a classifier sees of one image: random crops and colours while it trains, the centre when it is evaluated.

Resampling is bilinear over the area that a pixel covers, as in the PyTorch recipes that published results for ImageNet
come from; bicubic gives the same accuracy and takes longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from meristem_bench.data.colour import jittered, lit, mean_colour, normalised, unchanged
from meristem_bench.data.images import Box, Photo

_TRIES = 10
_MOST_ASPECT = 4 / 3
_MARGIN = 256 / 224  # of the resized image around the centre that is evaluated


@dataclass(frozen=True)
class TrainView:
    """A random part of the image, resized to ``size`` x ``size`` and mirrored half the time, in random colours.

    The standard for ImageNet (Szegedy et al. 2015; colours as in fb.resnet.torch): a part of ``least_area`` to all of
    the area and an aspect of 3/4 to 4/3.
    """

    size: int = 224
    jitter: float = 0.4
    lighting: float = 0.1
    least_area: float = 0.08

    def __post_init__(self) -> None:
        _check_size(self.size)
        if not 0 < self.least_area <= 1:
            raise ValueError(f"least_area must be more than 0 and at most 1, got {self.least_area}")
        for name in ("jitter", "lighting"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {getattr(self, name)}")

    def __call__(self, photo: Photo, rng: np.random.Generator) -> Tensor:
        pixels = photo.resized(random_box(photo.size, self.least_area, rng), (self.size, self.size), quick=True)
        if rng.random() < 0.5:
            pixels = pixels[:, ::-1]
        colours = jittered(unchanged(), mean_colour(pixels), self.jitter, rng)
        return normalised(lit(colours, self.lighting, rng))(pixels)


@dataclass(frozen=True)
class CentreView:
    """The central square of the image, resized so that the square is 224/256 of the shorter side."""

    size: int = 224

    def __post_init__(self) -> None:
        _check_size(self.size)

    def __call__(self, photo: Photo) -> Tensor:
        box = central_box(photo.size, self.size)
        return normalised(unchanged())(photo.resized(box, (self.size, self.size)))


def random_box(size: tuple[int, int], least_area: float, rng: np.random.Generator) -> Box:
    """A part of an image with a random area and aspect; as often wide as high.

    An area and an aspect that do not fit are drawn again; after ten times it is the largest central part that has an
    allowed aspect.
    """
    width, height = size
    for _ in range(_TRIES):
        area = width * height * rng.uniform(least_area, 1)
        aspect = math.exp(rng.uniform(-math.log(_MOST_ASPECT), math.log(_MOST_ASPECT)))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, upper = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
            return (left, upper, left + wide, upper + high)
    wide = max(1, min(width, round(height * _MOST_ASPECT)))
    high = max(1, min(height, round(width * _MOST_ASPECT)))
    left, upper = (width - wide) // 2, (height - high) // 2
    return (left, upper, left + wide, upper + high)


def central_box(size: tuple[int, int], crop: int) -> Box:
    """Where the central ``crop`` x ``crop`` pixels of the resized image lie in the image itself."""
    width, height = size
    shorter = round(crop * _MARGIN)
    resized = [max(shorter, int(shorter * side / min(size))) for side in size]
    left, upper = (round((side - crop) / 2) for side in resized)
    x_scale, y_scale = width / resized[0], height / resized[1]
    return (left * x_scale, upper * y_scale, (left + crop) * x_scale, (upper + crop) * y_scale)


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"the size of an image must be at least 1, got {size}")
