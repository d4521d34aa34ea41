"""CIFAR-10 and CIFAR-100 from their official files, Python or binary, read without trusting them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem_bench.data.arrays import Splits, split_validation
from meristem_bench.data.safe_pickle import ForeignNameError, PickledArray, load_pickle, printable

FOLDER = "cifar-10-batches-py"
_PIXELS = 3 * 32 * 32


def cifar10(folder: str | Path, held_out: int = 5000) -> Splits:
    """Images ``[N, 3, 32, 32]`` and labels ``[N]``; the last ``held_out`` training images are ``validation``.

    With 0 all are trained on and there is no validation.
    ``folder`` is ``cifar-10-batches-py``, ``cifar-10-batches-bin`` or the folder one of them lies in.
    """
    return _read_set(_CIFAR10, Path(folder), held_out, _CIFAR10.labels[0])


def cifar100(folder: str | Path, held_out: int = 5000, labels: str = "fine") -> Splits:
    """The same for CIFAR-100, with its 100 ``"fine"`` labels or its 20 ``"coarse"`` ones.

    ``folder`` is ``cifar-100-python``, ``cifar-100-binary`` or the folder one of them lies in.
    """
    matching = [label for label in _CIFAR100.labels if label.key == f"{labels}_labels".encode()]
    if not matching:
        raise ValueError(f"CIFAR-100 has fine and coarse labels, not {labels!r}")
    return _read_set(_CIFAR100, Path(folder), held_out, matching[0])


# --- the published files --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Label:
    """Labels of one kind: under a key of the Python files; in the binary files, one byte each before the pixels."""

    key: bytes
    classes: int


@dataclass(frozen=True)
class _Layout:
    """One form in which a data set is published: its folder and files."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    pickled: bool

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test)


@dataclass(frozen=True)
class _Cifar:
    """One of the two data sets."""

    title: str
    name: str  # for `meristem data`
    labels: tuple[_Label, ...]  # in the order of the binary files
    mean: tuple[float, ...]  # of the training pixels, per colour
    deviation: tuple[float, ...]
    layouts: tuple[_Layout, ...]  # the first one found is read
    largest_bytes: int  # twice the largest official file


_CIFAR10 = _Cifar(
    title="CIFAR-10",
    name="cifar10",
    labels=(_Label(b"labels", 10),),
    mean=(0.4914, 0.4822, 0.4465),
    deviation=(0.2470, 0.2435, 0.2616),
    layouts=(
        _Layout(
            FOLDER,
            "cifar-10-python.tar.gz",
            tuple(f"data_batch_{number}" for number in range(1, 6)),
            "test_batch",
            pickled=True,
        ),
        _Layout(
            "cifar-10-batches-bin",
            "cifar-10-binary.tar.gz",
            tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
            "test_batch.bin",
            pickled=False,
        ),
    ),
    largest_bytes=64 << 20,
)
_CIFAR100 = _Cifar(
    title="CIFAR-100",
    name="cifar100",
    labels=(_Label(b"coarse_labels", 20), _Label(b"fine_labels", 100)),
    mean=(0.5071, 0.4865, 0.4409),
    deviation=(0.2673, 0.2564, 0.2762),
    layouts=(
        _Layout("cifar-100-python", "cifar-100-python.tar.gz", ("train",), "test", pickled=True),
        _Layout("cifar-100-binary", "cifar-100-binary.tar.gz", ("train.bin",), "test.bin", pickled=False),
    ),
    largest_bytes=320 << 20,
)


# --- reading them ---------------------------------------------------------------------------------------------------


def _read_set(kind: _Cifar, folder: Path, held_out: int, label: _Label) -> Splits:
    where, layout = _find(kind, folder)
    train = _joined(kind, layout, [where / name for name in layout.train], label)
    return split_validation(where, train, _joined(kind, layout, [where / layout.test], label), held_out)


def _find(kind: _Cifar, folder: Path) -> tuple[Path, _Layout]:
    """The first layout of which all files are there."""
    incomplete = []
    for layout in kind.layouts:
        for where in (folder, folder / layout.folder):
            missing = [name for name in layout.files if not (where / name).is_file()]
            if not missing:
                return where, layout
            if len(missing) < len(layout.files):
                incomplete.append(f"{where} lacks {', '.join(missing)}; unpack {layout.archive} again")
    if incomplete:
        raise ValueError(incomplete[0])
    folders, archives = (
        " or ".join(getattr(layout, field) for layout in kind.layouts) for field in ("folder", "archive")
    )
    raise ValueError(
        f"{folder} holds no {folders}; give the folder into which {archives} was unpacked, "
        f"or fetch it with: meristem data {kind.name} DIR"
    )


def _joined(kind: _Cifar, layout: _Layout, paths: list[Path], label: _Label) -> tuple[Tensor, Tensor]:
    read = _from_pickle if layout.pickled else _from_rows
    column = kind.labels.index(label)
    parts = [read(kind, path) for path in paths]
    images = torch.from_numpy(np.concatenate([pixels for pixels, _ in parts])).view(-1, 3, 32, 32).float()
    targets = torch.from_numpy(np.concatenate([labels[column] for _, labels in parts]))
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in (kind.mean, kind.deviation))
    return images.div_(255).sub_(mean).div_(deviation), targets  # in place: the images take a gigabyte as it is


def _from_pickle(kind: _Cifar, path: Path) -> tuple[Any, list[Any]]:
    """Pixels ``[N, 3072]`` and, for each kind of labels, as many of them."""
    raw = _content(kind, path)
    try:
        content = load_pickle(raw)
    except ForeignNameError as error:
        raise ValueError(f"{path} is refused: it asks for {error}, which no file of {kind.title} contains") from None
    except Exception as error:  # a damaged pickle can raise almost anything
        reason = f"{type(error).__name__}: {printable(str(error))}"
        raise ValueError(f"{path} is damaged ({reason}); unpack it again") from None
    if not isinstance(content, dict):
        content = {}
    data, lists = content.get(b"data"), [content[label.key] for label in kind.labels if label.key in content]
    images = data.as_byte_matrix() if isinstance(data, PickledArray) else None
    if images is None or not len(images) or images.shape[1] != _PIXELS or len(lists) < len(kind.labels):
        expected = " and ".join(label.key.decode() for label in kind.labels)
        raise ValueError(f"{path} is not a file of {kind.title}: expected rows of {_PIXELS} bytes and {expected}")
    if not all(isinstance(values, list) and len(values) == len(images) for values in lists):
        raise ValueError(f"{path} is damaged: it has {len(images)} images, but not as many labels; unpack it again")
    if not all(type(label) is int for values in lists for label in values):
        raise ValueError(f"{path} is not a file of {kind.title}: a label is not a number")
    _check_range(kind, path, [(min(values), max(values)) for values in lists])
    return images, [np.array(values, dtype=np.int64) for values in lists]


def _from_rows(kind: _Cifar, path: Path) -> tuple[Any, list[Any]]:
    """The same from a binary file: rows of the labels, a byte each, and the pixels."""
    content = np.frombuffer(_content(kind, path), dtype=np.uint8)
    length = len(kind.labels) + _PIXELS
    if not len(content) or len(content) % length:
        raise ValueError(
            f"{path} is not a whole file of {kind.title}: expected rows of {length} bytes, got {len(content)} bytes"
        )
    rows = content.reshape(-1, length)
    labels = [rows[:, column].astype(np.int64) for column in range(len(kind.labels))]
    _check_range(kind, path, [(int(column.min()), int(column.max())) for column in labels])
    return rows[:, len(kind.labels) :], labels


def _content(kind: _Cifar, path: Path) -> bytes:
    try:
        if path.stat().st_size <= kind.largest_bytes:
            return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    raise ValueError(f"{path} is too large to be a file of {kind.title}")


def _check_range(kind: _Cifar, path: Path, ranges: list[tuple[int, int]]) -> None:
    for label, (least, most) in zip(kind.labels, ranges, strict=True):
        if least < 0 or most >= label.classes:
            raise ValueError(
                f"{path} is not a file of {kind.title}: a label is not a number from 0 to {label.classes - 1}"
            )
