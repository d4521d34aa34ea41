"""Images in one folder per class, as ImageNet is usually unpacked; opened only when they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem_bench.data.images import SUFFIXES, Photo, check_pillow

_JUNK_NAMES, _JUNK_SUFFIXES = frozenset({"thumbs.db", "desktop.ini"}), frozenset({".txt"})


@dataclass(frozen=True, eq=False)
class ClassImages:
    """The images of one split. Names are kept in one array: a million strings would be copied into every worker."""

    folder: str
    names: NDArray[np.bytes_]  # "class/file"
    labels: NDArray[np.int64]
    view: Callable[[Photo, np.random.Generator], Tensor]
    evaluate_view: Callable[[Photo], Tensor]

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, index: int, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        photo = Photo.read(os.path.join(self.folder, os.fsdecode(bytes(self.names[index]))))
        image = self.evaluate_view(photo) if rng is None else self.view(photo, rng)
        return image, torch.tensor(int(self.labels[index]))


def class_folders(
    folder: str | Path,
    view: Callable[[Photo, np.random.Generator], Tensor],
    evaluate_view: Callable[[Photo], Tensor],
    held_out: int = 0,
    classes: int | None = None,
) -> dict[str, ClassImages]:
    """The splits of ``folder/train/<class>/*`` and ``folder/val/<class>/*``; ``test`` is looked for if there is no val.

    Classes are numbered by their sorted names in ``train``. The last image of every class in turn, then the one before
    it, and so on, become ``validation`` until there are ``held_out``; every class keeps one. ``classes``, if given, is
    how many there must be.

    Files are images by their suffix. Hidden files, ``Thumbs.db``, ``desktop.ini`` and ``*.txt`` are passed over; any
    other file, and a folder inside a class, is refused: it may be there by mistake, or an image in a form not read.
    """
    check_pillow()
    train_folder, test_folder = _split_folders(Path(folder))
    names = _class_names(train_folder)
    if classes is not None and len(names) != classes:
        raise ValueError(f"{train_folder} has {len(names)} class folders, expected {classes}")
    if foreign := sorted(set(_class_names(test_folder)) - set(names)):
        raise ValueError(f"{test_folder / foreign[0]} is of no class to learn: {train_folder} has no such folder")
    files, labels = _scan(train_folder, names)
    is_held_out = _held_out(labels, held_out, train_folder)
    parts = {
        "train": (files[~is_held_out], labels[~is_held_out]),
        "validation": (files[is_held_out], labels[is_held_out]),
    }
    splits = {
        name: ClassImages(str(train_folder), *part, view, evaluate_view) for name, part in parts.items() if len(part[0])
    }
    splits["test"] = ClassImages(str(test_folder), *_scan(test_folder, names), view, evaluate_view)
    return splits


def _split_folders(folder: Path) -> tuple[Path, Path]:
    tests = [folder / name for name in ("val", "test") if (folder / name).is_dir()]
    if not (folder / "train").is_dir() or not tests:
        raise ValueError(f"{folder} has no folders train and val (or test); give the folder in which they lie")
    return folder / "train", tests[0]


def _class_names(folder: Path) -> list[str]:
    names = sorted(entry.name for entry in _entries(folder) if entry.is_dir())
    if not names:
        raise ValueError(f"{folder} has no folders of classes")
    if files := [entry for entry in _entries(folder) if not entry.is_dir()]:
        raise ValueError(f"{files[0].path} lies beside the folders of classes; move it into one or elsewhere")
    return names


def _scan(folder: Path, names: list[str]) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
    """All images below ``folder`` with the numbers of their classes. A class may be missing, but not be empty."""
    files: list[bytes] = []
    labels: list[int] = []
    present = set(_class_names(folder))
    for label, name in enumerate(names):
        if name not in present:
            continue
        images = sorted(os.fsencode(f"{name}/{entry.name}") for entry in _entries(folder / name) if _is_image(entry))
        if not images:
            raise ValueError(f"{folder / name} has no images; remove it or unpack it again")
        files += images
        labels += [label] * len(images)
    return np.array(files), np.array(labels, dtype=np.int64)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, without those that are no part of a data set."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not _is_junk(entry.name)]
    except OSError as error:
        raise ValueError(f"{folder} cannot be read ({error.strerror})") from None


def _is_junk(name: str) -> bool:
    lower = name.lower()
    return name.startswith(".") or lower in _JUNK_NAMES or os.path.splitext(lower)[1] in _JUNK_SUFFIXES


def _is_image(entry: os.DirEntry[str]) -> bool:
    if entry.is_dir():
        raise ValueError(f"{entry.path} is a folder inside that of a class; move its images one level up")
    if os.path.splitext(entry.name)[1].lower() not in SUFFIXES:
        raise ValueError(f"{entry.path} is not an image ({', '.join(sorted(SUFFIXES))}); convert it or remove it")
    return True


def _held_out(labels: NDArray[np.int64], count: int, folder: Path) -> NDArray[np.bool_]:
    """A mask of the images that are held out: from the end of each class, the classes taking turns."""
    sizes = np.bincount(labels)
    place = np.arange(len(labels)) - (np.cumsum(sizes) - sizes)[labels]  # within its class
    turn = sizes[labels] - 1 - place
    candidates = np.flatnonzero(place > 0)
    if not 0 <= count <= len(candidates):
        raise ValueError(
            f"{folder} has {len(labels)} images of {len(sizes)} classes: {count} cannot be held out; change held_out"
        )
    chosen = candidates[np.lexsort((labels[candidates], turn[candidates]))][:count]
    is_held_out = np.zeros(len(labels), dtype=np.bool_)
    is_held_out[chosen] = True
    return is_held_out
