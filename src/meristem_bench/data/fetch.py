"""Fetching data sets from their official homes: resumed where they stopped, checked, and whole or not there at all."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import http.client
import re
import shutil
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

_CHUNK_BYTES = 1 << 18
_SECONDS = 30  # without an answer
_ATTEMPTS = 5  # per address, when the connection breaks in the middle


# --- what there is ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remote:
    """A file and where it can be had; the addresses are tried in turn."""

    file: str
    md5: str
    size: int  # bytes
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Need:
    """A file or folder that must be there afterwards."""

    path: str
    md5: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A data set that can be fetched, or must be by hand."""

    name: str
    about: str
    files: tuple[Remote, ...]
    needs: tuple[Need, ...]
    unpacked: str | None = None  # the folder in the archives that is the data set; without: files are kept as they are
    by_hand: str | None = None  # what the user must do, for data that may not be fetched
    reader: str | None = None  # the function of meristem_bench.data that reads it


def _files(home: tuple[str, ...], *entries: tuple[str, str, int]) -> tuple[Remote, ...]:
    return tuple(Remote(file, md5, size, tuple(f"{place}{file}" for place in home)) for file, md5, size in entries)


def _plain(name: str, about: str, files: tuple[Remote, ...], reader: str) -> DataSet:
    return DataSet(name, about, files, tuple(Need(remote.file, remote.md5) for remote in files), reader=reader)


_TORONTO = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
_OXFORD = "robots.ox.ac.uk/pascal/VOC/voc2012/"
_SBD = "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/semantic_contours/"

DATA_SETS: tuple[DataSet, ...] = (
    DataSet(
        "cifar10",
        "60 000 images of 32x32 pixels in 10 classes",
        _files(_TORONTO, ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071)),
        (
            Need("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f"),
            Need("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            Need("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            Need("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a"),
            Need("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
            Need("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e"),
        ),
        unpacked="cifar-10-batches-py",
        reader="meristem_bench.data.cifar.cifar10",
    ),
    DataSet(
        "cifar100",
        "60 000 images of 32x32 pixels in 100 classes",
        _files(_TORONTO, ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437)),
        (
            Need("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),
            Need("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        ),
        unpacked="cifar-100-python",
        reader="meristem_bench.data.cifar.cifar100",
    ),
    _plain(
        "mnist",
        "70 000 handwritten digits of 28x28 pixels",
        _files(
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
        "meristem_bench.data.idx.idx_images",
    ),
    _plain(
        "fashion-mnist",
        "70 000 pieces of clothing of 28x28 pixels in 10 classes",
        _files(
            (
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            ),
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
        "meristem_bench.data.idx.idx_images",
    ),
    DataSet(
        "voc2012",
        "PASCAL VOC 2012: 2 913 segmented images in 20 classes",
        _files(
            (f"http://host.{_OXFORD}", f"https://thor.{_OXFORD}"),
            ("VOCtrainval_11-May-2012.tar", "6cd6e144f989b92b3379bac3b3de84fd", 1_999_639_040),
        ),
        tuple(
            Need(f"VOCdevkit/VOC2012/{path}")
            for path in (
                "JPEGImages",
                "SegmentationClass",
                "ImageSets/Segmentation/train.txt",
                "ImageSets/Segmentation/val.txt",
            )
        ),
        unpacked="VOCdevkit/VOC2012",
    ),
    DataSet(
        "voc2012-extra",
        "more segmentations of VOC images (SBD), for the usual 10 582 training images",
        _files((_SBD,), ("benchmark.tgz", "82b4d87ceb2ed10f6038a1cba92111cb", 1_419_539_633)),
        tuple(Need(f"benchmark_RELEASE/dataset/{path}") for path in ("cls", "img", "train.txt", "val.txt")),
        unpacked="benchmark_RELEASE",
    ),
    DataSet(
        "imagenet",
        "ILSVRC 2012: 1.3 million photographs in 1000 classes",
        (),
        (Need("train"), Need("val")),
        by_hand="log in at https://image-net.org, download ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, and "
        "lay the images out as train/<wnid>/*.JPEG and val/<wnid>/*.JPEG (train has one tar for each wnid; the wnids "
        "of val are in ILSVRC2012_devkit_t12.tar.gz of the same page)",
    ),
)


class Watcher(Protocol):
    """Who is told how it goes."""

    def say(self, line: str) -> None: ...
    def progress(self, file: str, done: int, size: int) -> None: ...


# --- fetching it --------------------------------------------------------------------------------------------------


def fetch(data_set: DataSet, folder: Path, watcher: Watcher) -> bool:
    """Make the data set be in ``folder``; False when it was there already. What else is there is never replaced."""
    try:
        missing = [need.path for need in data_set.needs if not _is_there(need, folder, data_set.name)]
        if not missing:
            return False
        if data_set.by_hand:
            raise ValueError(f"{data_set.name} must be fetched by hand into {folder}: {data_set.by_hand}")
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; give a folder to fetch {data_set.name} into")
        if data_set.unpacked and (begun := folder / data_set.unpacked).exists():
            raise ValueError(f"{begun} is there but lacks {', '.join(missing)}; move it away and run this again")
        folder.mkdir(parents=True, exist_ok=True)
        for remote in data_set.files:
            fetched = _fetch_file(remote, folder, data_set, watcher)
            if data_set.unpacked:
                watcher.say(f"unpacking {remote.file}")
                _unpack(folder / remote.file, data_set, folder)
                if fetched:  # an archive that the user brought stays
                    (folder / remote.file).unlink()
    except OSError as error:
        raise ValueError(_told(error, folder)) from None
    return True


def _is_there(need: Need, folder: Path, name: str) -> bool:
    path = folder / need.path
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return False
    if need.md5 and (not path.is_file() or _md5(path) != need.md5):
        raise ValueError(
            f"{path} is not the official file of {name} (its md5 sum is another); move it away and run this again, "
            f"or give another folder"
        )
    return True


def _fetch_file(remote: Remote, folder: Path, data_set: DataSet, watcher: Watcher) -> bool:
    """Whether it had to be fetched. It is only seen under its own name when it is whole and its sum fits."""
    if _is_there(Need(remote.file, remote.md5), folder, data_set.name):
        return False
    part = folder / f"{remote.file}.part"
    wanted = remote.size * (2 if data_set.unpacked else 1) - _size(part)
    if (free := shutil.disk_usage(folder).free) < wanted:
        raise ValueError(f"{remote.file} needs {_mb(wanted)} in {folder}, where only {_mb(free)} are free")
    reasons = []
    for address in remote.addresses:
        try:
            _fetch_from(address, remote, part, watcher)
        except _RefusedError as error:
            reasons.append(str(error))
            continue
        part.replace(folder / remote.file)
        return True
    kept = f" ({_mb(_size(part))} of it are kept)" if _size(part) else ""
    raise ValueError(
        f"{remote.file} cannot be fetched: {', and '.join(reasons)}; check the network and run this again{kept}"
    )


class _RefusedError(Exception):
    """An address does not give the file; another one might."""


def _fetch_from(address: str, remote: Remote, part: Path, watcher: Watcher) -> None:
    """Fill ``part``. After a break it goes on where it was; what was there before is given up if it does not fit."""
    doubtful = _size(part) > 0  # it may be of another file
    for _ in range(_ATTEMPTS):
        if _size(part) < remote.size:
            _append(address, remote, part, watcher)
        if _size(part) < remote.size:
            doubtful = True
            continue
        if _size(part) == remote.size and _md5(part) == remote.md5:
            return
        part.unlink()
        if not doubtful:
            raise _RefusedError(f"what {_host(address)} sent has another md5 sum than {remote.md5}, so it is not kept")
        watcher.say(f"what was there of {remote.file} does not fit; fetching it anew")
        doubtful = False
    raise _RefusedError(f"the connection to {_host(address)} broke {_ATTEMPTS} times")


def _append(address: str, remote: Remote, part: Path, watcher: Watcher) -> None:
    """Ask for what is missing and write what comes; returns early when the connection breaks."""
    done = _size(part)
    with _opened(address, done) as response:
        if response is None or (response.status == 206 and _range(response) != (done, remote.size)):
            part.unlink(missing_ok=True)  # the server's file is another one than it was: ask for the whole of it
            return
        if response.status != 206:  # the server sends all of it, whatever was asked for
            done = 0
            if (offered := getattr(response, "length", None)) not in (None, remote.size):
                raise _RefusedError(f"{_host(address)} offers {offered} bytes at {address}, expected {remote.size}")
        with part.open("ab" if done else "wb") as out:
            while done < remote.size:
                try:
                    chunk = response.read(min(_CHUNK_BYTES, remote.size - done))
                except http.client.IncompleteRead as error:
                    chunk = error.partial
                except (OSError, http.client.HTTPException):
                    return
                if not chunk:
                    return
                out.write(chunk)
                done += len(chunk)
                watcher.progress(remote.file, done, remote.size)


def _opened(address: str, start: int) -> Any:
    """A response to close, or None inside a context when the server has nothing from ``start`` on."""
    headers = {"User-Agent": "meristem", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:
            return contextlib.nullcontext()
        answer = f"{error.code} {http.client.responses.get(error.code, '')}".strip()
        raise _RefusedError(f"{_host(address)} answered {answer} for {address}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        told = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise _RefusedError(f"{_host(address)} cannot be reached ({told})") from None


def _range(response: Any) -> tuple[int, int] | None:
    """Where a part of a file begins, and how long the whole file is."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
    return (int(found[1]), int(found[2])) if found else None


# --- unpacking it -------------------------------------------------------------------------------------------------


def _unpack(archive: Path, data_set: DataSet, folder: Path) -> None:
    """Unpack beside, then move the data set's folder into place in one step."""
    beside = folder / f".{archive.name}.unpacking"
    shutil.rmtree(beside, ignore_errors=True)  # of a run that was killed
    beside.mkdir()
    try:
        if archive.suffix == ".zip":
            _unzip(archive, beside)
        else:
            _untar(archive, beside)
        for need in data_set.needs:
            if not (beside / need.path).exists():
                raise ValueError(f"{archive} does not hold {need.path}; nothing of it is unpacked")
        target = folder / str(data_set.unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        (beside / str(data_set.unpacked)).rename(target)
    except (tarfile.TarError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{archive} is refused: {error}; nothing of it is unpacked") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _untar(archive: Path, into: Path) -> None:
    if not hasattr(tarfile, "data_filter"):  # the first releases of Python 3.10 and 3.11
        raise ValueError(f"this Python cannot unpack safely; unpack it by hand: tar -xf {archive} -C {into.parent}")

    def checked(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        _check_inside(member.name)
        return tarfile.data_filter(member, path)

    with tarfile.open(archive) as opened:
        opened.extractall(into, filter=checked)


def _unzip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            _check_inside(name)
        opened.extractall(into)


def _check_inside(name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", name):
        raise tarfile.TarError(f"it would write to {name!r}, outside of its folder")


# --- small things -------------------------------------------------------------------------------------------------


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _host(address: str) -> str:
    return urllib.parse.urlsplit(address).netloc


def _told(error: OSError, folder: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"there is no room left in {folder} ({error.strerror}); make room and run this again: it goes on"
    return f"{error.filename or folder} cannot be written ({error.strerror or error})"
