"""CIFAR-10 files: read as they are published, and without running what a file asks for."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from meristem.data.cifar import FOLDER, cifar10

NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def text(value: bytes) -> bytes:
    """A string as Python 2 pickled it, which Python 3 does not write any more."""
    return b"T" + struct.pack("<i", len(value)) + value


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def official(images: np.ndarray[Any, Any], labels: list[int], fortran: bool = False, kind: bytes = b"u1") -> bytes:
    """A pickle of the same structure, opcode by opcode, as the published files."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R("
        + number(1) + number(images.shape[0]) + number(images.shape[1]) + b"\x86"
        + b"cnumpy\ndtype\n" + text(kind) + number(0) + number(1) + b"\x87R("
        + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
        + (b"\x88" if fortran else b"\x89") + text(images.tobytes(order="F" if fortran else "C")) + b"tb"
    )  # fmt: skip
    rows = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"batch_label") + text(b"x") + text(b"labels") + rows + text(b"data") + array + b"u."


def written(folder: Path, rows: int = 4) -> Path:
    """Tiny files in the official layout; image k of all has the value k everywhere."""
    where = folder / FOLDER
    where.mkdir(parents=True)
    for index, name in enumerate(NAMES):
        first = index * rows
        images = np.repeat(np.arange(first, first + rows, dtype=np.uint8)[:, None], 3072, axis=1)
        (where / name).write_bytes(official(images, [k % 10 for k in range(first, first + rows)]))
    return folder


def pixel_values(images: torch.Tensor) -> list[int]:
    """The byte that all pixels of an image have."""
    red = images[:, 0] * 0.2470 + 0.4914
    assert torch.equal(red.amin((1, 2)), red.amax((1, 2)))
    return [int(value) for value in (red[:, 0, 0] * 255).round()]


def test_the_official_layout_is_read(tmp_path: Path) -> None:
    for folder in (written(tmp_path), tmp_path / FOLDER):
        splits = cifar10(folder, held_out=3)
        assert [pixel_values(images) for images, _ in splits.values()] == [
            list(range(17)),
            [17, 18, 19],
            [20, 21, 22, 23],
        ]
        assert splits["test"][0].shape == (4, 3, 32, 32)
        assert splits["train"][1].tolist() == [k % 10 for k in range(17)]
        assert splits["train"][1].dtype == torch.int64


def test_rows_are_channels_then_lines(tmp_path: Path) -> None:
    images = np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8)
    for fortran in (False, True):
        written(tmp_path / str(fortran))
        (tmp_path / str(fortran) / FOLDER / "test_batch").write_bytes(official(images, [0, 1], fortran))
        read, _ = cifar10(tmp_path / str(fortran), held_out=1)["test"]
        blue = (read[1, 2] * 0.2616 + 0.4465) * 255
        assert torch.equal(blue.round().flatten().to(torch.uint8), torch.from_numpy(images[1, 2048:]))


def test_missing_folders_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"nowhere holds no {FOLDER}; give the folder"):
        cifar10(tmp_path / "nowhere")
    written(tmp_path)
    (tmp_path / FOLDER / "data_batch_3").unlink()
    with pytest.raises(ValueError, match="lacks data_batch_3; unpack"):
        cifar10(tmp_path)


def test_more_than_there_is_cannot_be_held_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="20 training images: 5000 of them cannot be held out"):
        cifar10(written(tmp_path))


class Evil:
    """Pickled, it asks the reader to make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_malicious_pickle_executes_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    trap = tmp_path / "trap"
    assert pickle.loads(pickle.dumps(Evil(trap))) is None
    assert trap.exists(), "the pickle must be dangerous to an ordinary reader"
    trap.unlink()
    for content in (
        pickle.dumps(Evil(trap), protocol=2),
        pickle.dumps({b"data": Evil(trap), b"labels": [1]}),
        b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
    ):
        (tmp_path / FOLDER / "data_batch_2").write_bytes(content)
        with pytest.raises(ValueError, match=r"data_batch_2 is refused: it asks for [\w.]+, which no file of CIFAR-10"):
            cifar10(tmp_path, held_out=1)
        assert not trap.exists()


def test_the_stand_ins_cannot_be_changed_by_a_pickle(tmp_path: Path) -> None:
    written(tmp_path)
    good = (tmp_path / FOLDER / "test_batch").read_bytes()
    # BUILD on the class itself, with attributes to set.
    (tmp_path / FOLDER / "test_batch").write_bytes(b"\x80\x02cnumpy\nndarray\nN}S'bytes_matrix'\nK\x01s\x86b.")
    with pytest.raises(ValueError, match="test_batch is damaged"):
        cifar10(tmp_path, held_out=1)
    (tmp_path / FOLDER / "test_batch").write_bytes(good)
    assert len(cifar10(tmp_path, held_out=1)["test"][1]) == 4


IMAGES = np.zeros((2, 3072), dtype=np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (b"\x80\x02}", "is damaged"),
        (official(IMAGES, [0, 1])[:-2000], "is damaged"),
        (b"]q\x00.", "rows of 3072 bytes"),
        (b"}.", "rows of 3072 bytes"),
        (official(IMAGES, [0]), "rows of 3072 bytes"),
        (official(IMAGES[:0], []), "rows of 3072 bytes"),
        (official(IMAGES[:, :3000], [0, 1]), "rows of 3072 bytes"),
        (official(IMAGES, [0, 1], kind=b"f8"), "rows of 3072 bytes"),
        (official(IMAGES, [0, 1], kind=b"O8"), "rows of 3072 bytes"),
        (official(IMAGES, [0, 10]), "a label is not a number from 0 to 9"),
        (official(IMAGES, [0, -1]), "a label is not a number from 0 to 9"),
    ],
)
def test_what_is_not_cifar_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    written(tmp_path)
    (tmp_path / FOLDER / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match=rf"test_batch.*{message}"):
        cifar10(tmp_path, held_out=1)
