"""Files of data sets for tests: images, class folders, the lists and pairs of PASCAL VOC, and the shared samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"  # samples of the real data sets, if they are there
BILINEAR = Image.Resampling.BILINEAR
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def plain_pixels(colour: tuple[int, int, int] = (0, 0, 0), width: int = 12, height: int = 10) -> Bytes:
    """An image of one colour, ``[height, width, 3]``."""
    return np.full((height, width, 3), colour, dtype=np.uint8)


def smooth_pixels(width: int, height: int, seed: int = 0) -> Bytes:
    """An image with large and small structure, all positions different."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    fine = rng.integers(-10, 11, (height, width, 3))
    return (np.asarray(coarse.resize((width, height), BILINEAR)) + fine).clip(0, 255).astype(np.uint8)


def write_image(path: Path, pixels: Bytes | None = None, **options: Any) -> Path:
    """Write an image, by default a small black one, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(plain_pixels() if pixels is None else pixels).save(path, **options)
    return path


def write_class_folders(
    folder: Path, train: Mapping[str, int], test: Mapping[str, int], test_name: str = "val", suffix: str = ".png"
) -> Path:
    """Write so many images per class, ``train/<class>/<class>_<number>``, each of another grey."""
    for split, counts in (("train", train), (test_name, test)):
        for name, count in counts.items():
            for number in range(count):
                pixels = plain_pixels((number, number, number))
                write_image(folder / split / name / f"{name}_{number}{suffix}", pixels)
    return folder


def write_voc_pair(root: Path, name: str, labels: Bytes, folder: str = "SegmentationClass") -> None:
    """Write an image of VOC and its label map, as a palette image in ``folder``."""
    height, width = labels.shape
    write_image(root / "JPEGImages" / f"{name}.jpg", plain_pixels((90, 120, 30), width, height))
    label_map = Image.fromarray(labels)
    label_map.putpalette([*range(256)] * 3)
    (root / folder).mkdir(parents=True, exist_ok=True)
    label_map.save(root / folder / f"{name}.png")


def write_voc_list(root: Path, file: str, names: Sequence[str]) -> None:
    """Write one of the lists of images, ``train.txt`` or ``val.txt``, say."""
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True, exist_ok=True)
    (lists / file).write_text("".join(f"{name}\n" for name in names))
