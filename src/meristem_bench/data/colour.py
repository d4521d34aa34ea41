"""Colours of one image: normalisation, and the random changes of the ResNet training for ImageNet.

Every change is an affine map of colours, so all of them together with the normalisation are one: three by three numbers
and an offset, applied to the pixels once. Nothing is clipped in between, as in the reference (fb.resnet.torch).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem_bench.data.images import Pixels

Floats = NDArray[np.float64]

# Mean and deviation of the colours of ImageNet's training images, as shares of the largest value.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_BRIGHTNESS_OF = np.array([0.299, 0.587, 0.114])  # ITU-R 601: what red, green and blue add to grey
# Principal components of the colours of ImageNet (Krizhevsky et al. 2012): variances, and one component a column.
_VARIANCES = np.array([0.2175, 0.0188, 0.0045])
_COMPONENTS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])


@dataclass(frozen=True, eq=False)
class ColourMap:
    """A colour becomes ``matrix @ colour + offset``; colours are from 0 to 1."""

    matrix: Floats
    offset: Floats

    def then(self, matrix: Floats, offset: Floats) -> ColourMap:
        return ColourMap(matrix @ self.matrix, matrix @ self.offset + offset)

    def __call__(self, pixels_HWC: Pixels) -> Tensor:
        """The image as ``[3, height, width]``, in float32.

        Plane by plane rather than as a matrix product, whose bits may depend on the number of threads.
        """
        planes = pixels_HWC.transpose(2, 0, 1).astype(np.float32, order="C")
        matrix, offset = (self.matrix / 255).astype(np.float32), self.offset.astype(np.float32)
        mapped = np.empty_like(planes)
        for colour in range(3):
            np.multiply(planes[colour], matrix[colour, colour], out=mapped[colour])
            for other in range(3):
                if other != colour and matrix[colour, other]:
                    mapped[colour] += planes[other] * matrix[colour, other]
            mapped[colour] += offset[colour]
        return torch.from_numpy(mapped)


def unchanged() -> ColourMap:
    return ColourMap(np.eye(3), np.zeros(3))


def normalised(colours: ColourMap) -> ColourMap:
    """Followed by the normalisation of ImageNet; the mean colour becomes 0."""
    mean, deviation = np.array(MEAN), np.array(DEVIATION)
    return colours.then(np.diag(1 / deviation), -mean / deviation)


def jittered(colours: ColourMap, mean: Floats, amount: float, rng: np.random.Generator) -> ColourMap:
    """Followed by other brightness, contrast and saturation, by factors within ``amount`` of 1, in random order.

    ``mean`` is the mean colour of the image before any change: contrast is about the mean grey of the image as changed
    so far, and the mean of a mapped image is the mapped mean.
    """
    for change in rng.permutation(3):
        factor = 1 + rng.uniform(-amount, amount)
        if change == 0:  # brightness: towards black
            colours = colours.then(np.eye(3) * factor, np.zeros(3))
        elif change == 1:  # contrast: towards the mean grey
            grey = float(_BRIGHTNESS_OF @ (colours.matrix @ mean + colours.offset))
            colours = colours.then(np.eye(3) * factor, np.full(3, (1 - factor) * grey))
        else:  # saturation: towards each pixel's own grey
            colours = colours.then(np.eye(3) * factor + (1 - factor) * _BRIGHTNESS_OF, np.zeros(3))
    return colours


def lit(colours: ColourMap, amount: float, rng: np.random.Generator) -> ColourMap:
    """Followed by AlexNet's change of lighting: all pixels move along the principal components."""
    return colours.then(np.eye(3), _COMPONENTS @ (rng.normal(0, amount, 3) * _VARIANCES))


def mean_colour(pixels_HWC: Pixels) -> Floats:
    """From 0 to 1; sums of whole numbers, so exact."""
    height, width, _ = pixels_HWC.shape
    mean: Floats = pixels_HWC.sum(0, dtype=np.int64).sum(0) / (255 * height * width)  # in two steps: much faster
    return mean
