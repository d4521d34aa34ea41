"""CIFAR files: read as they are published, and without running what a file asks for."""

from __future__ import annotations

import builtins
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from meristem_bench.data.cifar import FOLDER, cifar10, cifar100

NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def text(value: bytes) -> bytes:
    """A string as Python 2 pickled it, which Python 3 does not write any more."""
    return b"T" + struct.pack("<i", len(value)) + value


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


Bytes = np.ndarray[Any, Any]


def official(images: Bytes, labels: list[int], fortran: bool = False, kind: bytes = b"u1") -> bytes:
    """A pickle of the same structure, opcode by opcode, as the published files of CIFAR-10."""
    return pickled(images, {b"labels": labels}, fortran, kind)


def pickled(images: Bytes, labels: dict[bytes, list[int]], fortran: bool = False, kind: bytes = b"u1") -> bytes:
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R("
        + number(1) + number(images.shape[0]) + number(images.shape[1]) + b"\x86"
        + b"cnumpy\ndtype\n" + text(kind) + number(0) + number(1) + b"\x87R("
        + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
        + (b"\x88" if fortran else b"\x89") + text(images.tobytes(order="F" if fortran else "C")) + b"tb"
    )  # fmt: skip
    lists = b"".join(text(key) + b"](" + b"".join(map(number, found)) + b"e" for key, found in labels.items())
    return b"\x80\x02}(" + text(b"batch_label") + text(b"x") + lists + text(b"data") + array + b"u."


def written(folder: Path, rows: int = 4) -> Path:
    """Tiny files in the official layout; image k of all has the value k everywhere."""
    where = folder / FOLDER
    where.mkdir(parents=True)
    for index, name in enumerate(NAMES):
        first = index * rows
        (where / name).write_bytes(official(grey(first, rows), [k % 10 for k in range(first, first + rows)]))
    return folder


def grey(first: int, rows: int) -> Bytes:
    return np.repeat(np.arange(first, first + rows, dtype=np.uint8)[:, None], 3072, axis=1)


def written_rows(folder: Path, rows: int = 4) -> Path:
    """The same content in the official binary layout."""
    where = folder / "cifar-10-batches-bin"
    where.mkdir(parents=True)
    for index, name in enumerate(NAMES):
        labels = np.arange(index * rows, (index + 1) * rows, dtype=np.uint8)[:, None] % 10
        (where / f"{name}.bin").write_bytes(np.hstack([labels, grey(index * rows, rows)]).tobytes())
    return folder


FINE, COARSE = [99, 0, 50, 7, 7], [19, 0, 10, 3, 3]


def written_100(folder: Path) -> Path:
    """Five training images and two of the test, in both layouts of CIFAR-100."""
    for name, layout, first, rows in (
        ("train", "cifar-100-python", 0, 5),
        ("test", "cifar-100-python", 5, 2),
        ("train.bin", "cifar-100-binary", 0, 5),
        ("test.bin", "cifar-100-binary", 5, 2),
    ):
        path = folder / layout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fine, coarse = FINE[:rows], COARSE[:rows]
        if path.suffix:
            path.write_bytes(np.hstack([np.array([coarse, fine], np.uint8).T, grey(first, rows)]).tobytes())
        else:
            path.write_bytes(pickled(grey(first, rows), {b"fine_labels": fine, b"coarse_labels": coarse}))
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


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and all(
        torch.equal(mine, theirs) for split in one for mine, theirs in zip(one[split], other[split], strict=True)
    )


def test_the_binary_layout_gives_the_same(tmp_path: Path) -> None:
    wanted = cifar10(written(tmp_path / "python"), held_out=3)
    for folder in (written_rows(tmp_path / "binary"), tmp_path / "binary" / "cifar-10-batches-bin"):
        assert same(cifar10(folder, held_out=3), wanted)
    assert cifar10(tmp_path / "binary", held_out=3)["train"][1].dtype == torch.int64


def test_python_files_come_first_if_they_are_whole(tmp_path: Path) -> None:
    written_rows(written(tmp_path))
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"damaged")
    assert len(cifar10(tmp_path, held_out=3)["test"][1]) == 4
    (tmp_path / FOLDER / "test_batch").unlink()
    with pytest.raises(
        ValueError, match=r"test_batch.bin is not a whole file of CIFAR-10: .* rows of 3073 bytes, got 7"
    ):
        cifar10(tmp_path, held_out=3)


def test_cifar_100_has_two_kinds_of_labels(tmp_path: Path) -> None:
    written_100(tmp_path)
    for folder in ("cifar-100-python", "cifar-100-binary"):
        fine = cifar100(tmp_path / folder, held_out=2)
        assert [labels.tolist() for _, labels in fine.values()] == [FINE[:3], FINE[3:], FINE[:2]]
        coarse = cifar100(tmp_path / folder, held_out=0, labels="coarse")
        assert [labels.tolist() for _, labels in coarse.values()] == [COARSE, COARSE[:2]]
        red = fine["validation"][0][:, 0, 0, 0] * 0.2673 + 0.5071
        assert (red * 255).round().tolist() == [3, 4]
        assert same(fine, cifar100(tmp_path, held_out=2))
    with pytest.raises(ValueError, match="has fine and coarse labels, not 'labels'"):
        cifar100(tmp_path, labels="labels")


def test_swapped_files_are_found_out(tmp_path: Path) -> None:
    hundred, ten = written_100(tmp_path / "100"), written_rows(written(tmp_path / "10"))
    swaps: list[tuple[Path, Path, Callable[[Path], Any]]] = [
        (hundred / "cifar-100-python/test", ten / FOLDER / "test_batch", cifar10),
        (hundred / "cifar-100-binary/test.bin", ten / "cifar-10-batches-bin/test_batch.bin", cifar10),
        (ten / FOLDER / "data_batch_1", hundred / "cifar-100-python/test", cifar100),
        (ten / "cifar-10-batches-bin/data_batch_1.bin", hundred / "cifar-100-binary/test.bin", cifar100),
    ]
    for source, target, read in swaps:
        kept = target.read_bytes()
        target.write_bytes(source.read_bytes())
        with pytest.raises(ValueError, match=rf"{target.name} is not a (whole )?file of CIFAR-100?: expected rows"):
            read(target.parent)
        target.write_bytes(kept)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a whole file of CIFAR-100: expected rows of 3074 bytes, got 0 bytes"),
        (bytes(3074 * 2 - 1), "not a whole file of CIFAR-100"),
        (bytes((20, 0)) + bytes(3072), "a label is not a number from 0 to 19"),
        (bytes((0, 100)) + bytes(3072), "a label is not a number from 0 to 99"),
    ],
)
def test_damaged_binary_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = written_100(tmp_path) / "cifar-100-binary" / "train.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"train.bin is .*{message}"):
        cifar100(path.parent, held_out=0)


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    with (written(tmp_path) / FOLDER / "test_batch").open("wb") as file:
        file.truncate(1 << 28)  # takes no room on the disk
    with pytest.raises(ValueError, match=r"test_batch is too large to be a file of CIFAR-10$"):
        cifar10(tmp_path, held_out=1)


def test_rows_are_channels_then_lines(tmp_path: Path) -> None:
    images = np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8)
    for fortran in (False, True):
        written(tmp_path / str(fortran))
        (tmp_path / str(fortran) / FOLDER / "test_batch").write_bytes(official(images, [0, 1], fortran))
        read, _ = cifar10(tmp_path / str(fortran), held_out=1)["test"]
        blue = (read[1, 2] * 0.2616 + 0.4465) * 255
        assert torch.equal(blue.round().flatten().to(torch.uint8), torch.from_numpy(images[1, 2048:]))


def test_missing_folders_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"nowhere holds no {FOLDER} or cifar-10-batches-bin; give the folder"):
        cifar10(tmp_path / "nowhere")
    with pytest.raises(
        ValueError, match=r"nowhere holds no cifar-100-python or cifar-100-binary; .* meristem data cifar100"
    ):
        cifar100(tmp_path / "nowhere")
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


class Run:
    """Pickled, it asks the reader to call a function."""

    def __init__(self, function: Callable[..., Any], *given: Any) -> None:
        self.call = function, given

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def test_a_malicious_pickle_executes_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    trap = tmp_path / "trap"
    touch = f"touch {trap}".encode()
    assert pickle.loads(pickle.dumps(Evil(trap))) is None
    assert trap.exists(), "the pickle must be dangerous to an ordinary reader"
    trap.unlink()
    for content in (
        pickle.dumps(Evil(trap), protocol=2),
        pickle.dumps({b"data": Evil(trap), b"labels": [1]}),
        b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        pickle.dumps([{b"data": [Run(os.system, f"touch {trap}")]}, [1]]),
        pickle.dumps(Run(builtins.exec, f"open({str(trap)!r}, 'w').close()"), protocol=4),
        pickle.dumps(Run(builtins.eval, "1"), protocol=0),
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(touch)]) + touch + b"\x85R.",
        b"(S'" + touch + b"'\nios\nsystem\n.",  # INST
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cos\nsystem\n(S'" + touch + b"'\ntRtR.",
        b"\x80\x04\x8c\x05numpy\x8c\x08core.sys\x93.",
        b"\x80\x02\x82\x01.",  # a name of the registry of short codes
    ):
        (tmp_path / FOLDER / "data_batch_2").write_bytes(content)
        with pytest.raises(
            ValueError, match=r"data_batch_2 is refused: it asks for [\w. ]+, which no file of CIFAR-10"
        ):
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


def test_a_name_cannot_put_lines_or_colours_into_the_message(tmp_path: Path) -> None:
    name = "a\n\x1b[31mb"
    content = b"\x80\x04\x8c\x02os\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    (written(tmp_path) / FOLDER / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match="is refused") as told:
        cifar10(tmp_path, held_out=1)
    assert str(told.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a place in a table of two thousand million
        b"\x80\x02}p2147483647\n.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",  # a terabyte of zeros
    ],
)
def test_a_short_pickle_cannot_take_much_memory(tmp_path: Path, content: bytes) -> None:
    (written(tmp_path) / FOLDER / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match="test_batch is damaged"):
        cifar10(tmp_path, held_out=1)


IMAGES = np.zeros((2, 3072), dtype=np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (b"\x80\x02}", "is damaged"),
        (official(IMAGES, [0, 1])[:-2000], "is damaged"),
        (b"]q\x00.", "rows of 3072 bytes"),
        (b"}.", "rows of 3072 bytes"),
        (b"not a pickle", "is damaged"),
        (official(IMAGES, [0]), "has 2 images, but not as many labels"),
        (pickled(IMAGES, {}), "expected rows of 3072 bytes and labels"),
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
