"""PASCAL VOC 2012 segmentation: images and label maps as they are published, opened only when they are needed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from meristem_bench.data.images import Photo, Pixels, check_pillow, label_map
from meristem_bench.data.segmentation_views import IGNORED

CLASSES = 21  # background and 20 kinds of things
_Pair = tuple[str, str]  # the files of an image and of its labels
_LISTS = Path("ImageSets", "Segmentation")
_AUGMENTED_LISTS = ("train_aug.txt", "trainaug.txt")
_AUGMENTED, _BOUNDARIES = "SegmentationClassAug", Path("benchmark_RELEASE", "dataset")


@dataclass(frozen=True)
class LabelledImages:
    """Images with one label per pixel."""

    pairs: tuple[_Pair, ...]
    view: Callable[[Photo, Pixels, np.random.Generator], tuple[Tensor, Tensor]]
    evaluate_view: Callable[[Photo, Pixels], tuple[Tensor, Tensor]]

    def __len__(self) -> int:
        return len(self.pairs)

    def load(self, index: int, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        image_path, label_path = self.pairs[index]
        photo, labels = Photo.read(image_path), _labels(label_path)
        height, width = labels.shape
        if photo.size != (width, height):
            size = f"{photo.size[0]}x{photo.size[1]}"
            raise ValueError(f"{label_path} has {width}x{height} pixels, but its image {image_path} has {size}")
        return self.evaluate_view(photo, labels) if rng is None else self.view(photo, labels, rng)


def voc_segmentation(
    folder: str | Path,
    view: Callable[[Photo, Pixels, np.random.Generator], tuple[Tensor, Tensor]],
    evaluate_view: Callable[[Photo, Pixels], tuple[Tensor, Tensor]],
    held_out: int = 0,
    extra: bool = False,
) -> dict[str, LabelledImages]:
    """``train`` and ``test`` (the official val); the last ``held_out`` of the official train list are ``validation``.

    ``folder`` is ``VOC2012``, or that in which it or ``VOCdevkit`` lies. With ``extra``, the other images annotated by
    Hariharan et al. (2011) are trained on, too, but none of val: 10 582 in all. Their labels are taken from
    ``SegmentationClassAug``, with the list ``ImageSets/Segmentation/train_aug.txt`` (or ``trainaug.txt``); if there is
    none, from ``benchmark_RELEASE``, unpacked beside ``VOC2012`` or ``VOCdevkit``, which needs scipy. An image of the
    official train list always has its official labels.
    """
    check_pillow()
    root = _root(Path(os.path.abspath(folder)))
    train, test = (_listed(root / _LISTS / f"{name}.txt") for name in ("train", "val"))
    if not 0 <= held_out < len(train):
        raise ValueError(f"{root} has {len(train)} training images: {held_out} of them cannot be held out")
    pairs = {name: _pairs(root, ids) for name, ids in (("train", train), ("test", test))}
    parts = {"train": pairs["train"][: len(train) - held_out], "test": pairs["test"]}
    if extra:
        parts["train"] = _extra_pairs(root, set(train), set(test)) + parts["train"]
    if held_out:
        parts["validation"] = pairs["train"][-held_out:]
    if both := {image for image, _ in parts["train"]} & {image for image, _ in parts["test"]}:
        raise ValueError(f"{min(both)} is in the lists of train and of val in {root / _LISTS}; unpack them again")
    return {name: LabelledImages(tuple(part), view, evaluate_view) for name, part in parts.items()}


# --- finding files ---


def _root(folder: Path) -> Path:
    for root in (folder, folder / "VOC2012", folder / "VOCdevkit" / "VOC2012"):
        if (root / _LISTS).is_dir():
            return root
    raise ValueError(f"{folder} holds no VOCdevkit/VOC2012; give the folder into which VOCtrainval was unpacked")


def _listed(path: Path) -> list[str]:
    """The names in a list: one per line, bare or as the paths of an image and its labels."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    names = [Path(line.split()[0]).stem for line in lines if line.strip()]
    if not names:
        raise ValueError(f"{path} names no images; unpack it again")
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise ValueError(f"{path} names {twice} twice; unpack it again")
    return names


def _pairs(root: Path, names: list[str], where: str = "SegmentationClass", suffix: str = ".png") -> list[_Pair]:
    """The pairs of these names; labels lie in ``where``, seen from ``root``."""
    images, labels = root / "JPEGImages", root / where
    for folder, ending in ((images, ".jpg"), (labels, suffix)):
        try:
            present = set(os.listdir(folder))
        except OSError as error:
            raise ValueError(f"{folder} cannot be read ({error.strerror})") from None
        for name in names:
            if name + ending not in present:
                raise ValueError(f"{folder / (name + ending)} is missing, but it is listed; unpack the archive again")
    return [(str(images / f"{name}.jpg"), str(labels / f"{name}{suffix}")) for name in names]


def _extra_pairs(root: Path, train: set[str], test: set[str]) -> list[_Pair]:
    """The pairs that are annotated beyond the official lists."""
    for name in _AUGMENTED_LISTS:
        if (root / _AUGMENTED).is_dir() and (root / _LISTS / name).is_file():
            listed = _listed(root / _LISTS / name)
            return _pairs(root, [name for name in listed if name not in train], _AUGMENTED)
    for above in (root.parent, root.parent.parent):
        where = above / _BOUNDARIES
        if where.is_dir():
            _scipy()
            listed = sorted({*_listed(where / "train.txt"), *_listed(where / "val.txt")} - train - test)
            return _pairs(root, listed, str(where / "cls"), ".mat")
    raise ValueError(
        f"there are no extra annotations: expected {root / _AUGMENTED} with {root / _LISTS / _AUGMENTED_LISTS[0]}, or "
        f"{root.parent / _BOUNDARIES}; `meristem data voc2012-extra DIR` puts them there"
    )


# --- reading labels ---


def _labels(path: str) -> Pixels:
    """A label map whose every number is a class or ``IGNORED``."""
    labels = _matlab_labels(path) if path.endswith(".mat") else label_map(path)
    counts = np.bincount(labels.reshape(-1), minlength=256)
    counts[[*range(CLASSES), IGNORED]] = 0
    if counts.any():
        raise ValueError(f"{path} has the label {counts.argmax()}: expected 0 to {CLASSES - 1}, or {IGNORED}")
    return labels


def _matlab_labels(path: str) -> Pixels:
    reader = _scipy()
    try:
        labels = np.asarray(reader.loadmat(path)["GTcls"]["Segmentation"][0, 0])
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    except Exception as error:  # a damaged file can raise almost anything
        raise ValueError(f"{path} is damaged ({type(error).__name__}); unpack benchmark_RELEASE again") from None
    if labels.ndim != 2 or labels.dtype != np.uint8:
        raise ValueError(f"{path} is no label map: expected a matrix of bytes, got {labels.dtype} of {labels.shape}")
    return labels


def _scipy() -> Any:
    try:
        return importlib.import_module("scipy.io")
    except ImportError:
        raise ValueError("reading the label maps of benchmark_RELEASE needs scipy: pip install scipy") from None
