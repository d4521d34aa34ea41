"""Handwritten digits of 8x8 pixels, shipped with the package; see ``DIGITS.md`` for where they come from."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FILE = Path(__file__).with_name("digits.npz")
_SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"
# Mean and deviation of the training pixels after division by the largest value.
_LARGEST, _MEAN, _DEVIATION = 16.0, 0.306, 0.376
BLANK = (0.0 - _MEAN) / _DEVIATION  # what an empty pixel looks like to the network
# Of nine successive images of a digit, which split each goes to.
_TURNS = ("train", "train", "test", "train", "train", "validation", "train", "train", "test")


def digits(file: Path = FILE) -> dict[str, tuple[Tensor, Tensor]]:
    """Images ``[N, 1, 8, 8]`` and labels ``[N]`` of the splits ``train``, ``validation`` and ``test``.

    The split is fixed and needs no random numbers: within each digit, in the order of the file, the images go to the
    splits in turns of nine: six to ``train``, one to ``validation``, two to ``test``. So every split has all digits and
    all writers in nearly equal shares.
    """
    images, labels = _read(file)
    turn = np.empty(len(labels), dtype=np.int64)
    for digit in range(10):
        of_digit = labels == digit
        turn[of_digit] = np.arange(of_digit.sum()) % len(_TURNS)
    inputs = torch.from_numpy((images.astype(np.float32) / _LARGEST - _MEAN) / _DEVIATION).float().unsqueeze(1)
    targets = torch.from_numpy(labels.astype(np.int64))
    split_of = np.array(_TURNS)[turn]
    return {
        name: (inputs[torch.from_numpy(split_of == name)], targets[torch.from_numpy(split_of == name)])
        for name in ("train", "validation", "test")
    }


def _read(file: Path) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], ...]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ValueError(f"the digits at {file} cannot be read ({error.strerror}); install meristem again") from None
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise ValueError(f"the digits at {file} are damaged; install meristem again")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return archive["images"], archive["labels"]
