"""CIFAR-10 from its official Python files, read without trusting them."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

FOLDER = "cifar-10-batches-py"
_TRAIN, _TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)
_PIXELS, _CLASSES = 3 * 32 * 32, 10
_LARGEST_FILE_BYTES = 64 << 20  # the official ones have half of that
# Mean and deviation of the training pixels, per colour.
_MEAN, _DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def cifar10(folder: str | Path, held_out: int = 5000) -> dict[str, tuple[Tensor, Tensor]]:
    """Images ``[N, 3, 32, 32]`` and labels ``[N]``; the last ``held_out`` training images are ``validation``.

    With 0 all are trained on and there is no validation.
    ``folder`` is ``cifar-10-batches-py`` or the folder it lies in.
    """
    where = _find(Path(folder))
    images, labels = _joined(where, _TRAIN)
    if not 0 <= held_out < len(labels):
        raise ValueError(f"{where} has {len(labels)} training images: {held_out} of them cannot be held out")
    if not held_out:
        return {"train": (images, labels), "test": _joined(where, _TEST)}
    return {
        "train": (images[:-held_out], labels[:-held_out]),
        "validation": (images[-held_out:], labels[-held_out:]),
        "test": _joined(where, _TEST),
    }


def _find(folder: Path) -> Path:
    for where in (folder, folder / FOLDER):
        if (where / _TEST[0]).is_file():
            missing = [name for name in _TRAIN if not (where / name).is_file()]
            if missing:
                raise ValueError(f"{where} lacks {', '.join(missing)}; unpack cifar-10-python.tar.gz again")
            return where
    raise ValueError(f"{folder} holds no {FOLDER}; give the folder into which cifar-10-python.tar.gz was unpacked")


def _joined(where: Path, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    parts = [_read(where / name) for name in names]
    pixels = torch.from_numpy(np.concatenate([images for images, _ in parts])).view(-1, 3, 32, 32)
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in (_MEAN, _DEVIATION))
    return (pixels.float() / 255 - mean) / deviation, torch.tensor([label for _, found in parts for label in found])


def _read(path: Path) -> tuple[Any, list[int]]:
    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise ValueError(f"{path} is too large to be a file of CIFAR-10")
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None
    except _ForeignNameError as error:
        raise ValueError(f"{path} is refused: it asks for {error}, which no file of CIFAR-10 contains") from None
    except Exception as error:  # a damaged pickle can raise almost anything
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}); unpack it again") from None
    data, labels = (content.get(key) if isinstance(content, dict) else None for key in (b"data", b"labels"))
    images = data.bytes_matrix() if isinstance(data, _Array) else None
    if images is None or not isinstance(labels, list) or images.shape != (len(labels), _PIXELS) or not labels:
        raise ValueError(f"{path} is not a file of CIFAR-10: expected rows of {_PIXELS} bytes and as many labels")
    if not all(type(label) is int and 0 <= label < _CLASSES for label in labels):
        raise ValueError(f"{path} is not a file of CIFAR-10: a label is not a number from 0 to {_CLASSES - 1}")
    return images, labels


# --- reading pickles without running them ---


class _ForeignNameError(Exception):
    """A pickle asks for something that is not on the list."""


class _Type:
    """Stands in for ``numpy.dtype``: remembers the name, ignores the rest."""

    def __init__(self, *given: Any) -> None:
        self.name = given[0] if given else None

    def __setstate__(self, state: Any) -> None:
        pass


class _Array:
    """Stands in for a numpy array and for the function that makes one: remembers what the pickle says about it."""

    def __init__(self, *given: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_matrix(self) -> Any:
        """The array, or None if something else than a matrix of bytes is described."""
        match self.state:
            case (_, (int(rows), int(columns)), _Type(name=b"u1" | "u1"), fortran, bytes(content)):
                if min(rows, columns) < 0 or rows * columns != len(content):
                    return None
                order: Any = "F" if fortran else "C"
                return np.frombuffer(content, dtype=np.uint8).reshape((rows, columns), order=order)
        return None


class _Unpickler(pickle.Unpickler):
    """Knows the three names that the files contain, and gives ours in their place: nothing of numpy is called.

    Only classes with a ``__setstate__`` are given: a function could be changed by what the pickle builds on it.
    """

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case ("numpy.core.multiarray", "_reconstruct") | ("numpy", "ndarray"):
                return _Array
            case ("numpy", "dtype"):
                return _Type
        raise _ForeignNameError(f"{module}.{name}")
