"""Fetches data sets: resumes where it stopped, checks sums, and leaves a data set whole or not at all."""

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
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from meristem_bench.data.data_sets import DataSet, RemoteFile, RequiredPath

_CHUNK_BYTES = 1 << 18
_SECONDS = 30  # without an answer
_ATTEMPTS = 5  # per address, when the connection breaks in the middle


class DownloadObserver(Protocol):
    """Receives messages and the progress of each file."""

    def say(self, line: str) -> None: ...
    def progress(self, file: str, done: int, size: int) -> None: ...


# --- fetching files ----------------------------------------------------------------------------------------------


def fetch(data_set: DataSet, folder: Path, observer: DownloadObserver) -> bool:
    """Put the data set into ``folder``; False if it was there already. Nothing else in the folder is replaced."""
    try:
        missing = [required.path for required in data_set.required if not _is_there(required, folder, data_set.name)]
        if not missing:
            return False
        if data_set.instructions:
            raise ValueError(f"{data_set.name} must be fetched by hand into {folder}: {data_set.instructions}")
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file; give a folder to fetch {data_set.name} into")
        if data_set.unpacked and (incomplete := folder / data_set.unpacked).exists():
            raise ValueError(f"{incomplete} is there but lacks {', '.join(missing)}; move it away and run this again")
        folder.mkdir(parents=True, exist_ok=True)
        for remote in data_set.files:
            fetched = _fetch_file(remote, folder, data_set, observer)
            if data_set.unpacked:
                observer.say(f"unpacking {remote.file}")
                _unpack(folder / remote.file, data_set, folder)
                if fetched:  # an archive that the user brought stays
                    (folder / remote.file).unlink()
    except OSError as error:
        raise ValueError(_write_error(error, folder)) from None
    return True


def _is_there(required: RequiredPath, folder: Path, name: str) -> bool:
    path = folder / required.path
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return False
    if required.md5 and (not path.is_file() or _md5(path) != required.md5):
        raise ValueError(
            f"{path} is not the official file of {name} (its md5 sum is another); move it away and run this again, "
            f"or give another folder"
        )
    return True


def _fetch_file(remote: RemoteFile, folder: Path, data_set: DataSet, observer: DownloadObserver) -> bool:
    """Fetch a file unless it is there; True if it had to be. It gets its own name only when it is whole and checked."""
    if _is_there(RequiredPath(remote.file, remote.md5), folder, data_set.name):
        return False
    part = folder / f"{remote.file}.part"
    bytes_needed = remote.size * (2 if data_set.unpacked else 1) - _size(part)
    if (free := shutil.disk_usage(folder).free) < bytes_needed:
        raise ValueError(f"{remote.file} needs {_mb(bytes_needed)} in {folder}, where only {_mb(free)} are free")
    reasons = []
    for address in remote.addresses:
        try:
            _fetch_from(address, remote, part, observer)
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


def _fetch_from(address: str, remote: RemoteFile, part: Path, observer: DownloadObserver) -> None:
    """Fill ``part``, after a break from where it was; what an earlier run left is dropped if the sum does not fit."""
    may_be_foreign = _size(part) > 0  # it may be of another file
    for _ in range(_ATTEMPTS):
        if _size(part) < remote.size:
            _append(address, remote, part, observer)
        if _size(part) < remote.size:
            may_be_foreign = True
            continue
        if _size(part) == remote.size and _md5(part) == remote.md5:
            return
        part.unlink()
        if not may_be_foreign:
            raise _RefusedError(f"what {_host(address)} sent has another md5 sum than {remote.md5}, so it is not kept")
        observer.say(f"what was there of {remote.file} does not fit; fetching it anew")
        may_be_foreign = False
    raise _RefusedError(f"the connection to {_host(address)} broke {_ATTEMPTS} times")


def _append(address: str, remote: RemoteFile, part: Path, observer: DownloadObserver) -> None:
    """Request what is missing and append it; return early when the connection breaks."""
    done = _size(part)
    with _opened(address, done) as response:
        if response is None or (response.status == 206 and _range(response) != (done, remote.size)):
            part.unlink(missing_ok=True)  # the file on the server has changed: request all of it
            return
        if response.status != 206:  # the server sends all of it, whatever was requested
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
                observer.progress(remote.file, done, remote.size)


def _opened(address: str, start: int) -> Any:
    """The response as a context manager; one of None when the server has nothing from ``start`` on."""
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
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise _RefusedError(f"{_host(address)} cannot be reached ({text})") from None


def _range(response: Any) -> tuple[int, int] | None:
    """The start of the part that the server sends, and the size of the whole file."""
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
    return (int(match[1]), int(match[2])) if match else None


# --- unpacking archives -------------------------------------------------------------------------------------------


def _unpack(archive: Path, data_set: DataSet, folder: Path) -> None:
    """Unpack into a temporary folder, then move the data set into place in one step."""
    temporary = folder / f".{archive.name}.unpacking"
    shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed
    temporary.mkdir()
    try:
        if archive.suffix == ".zip":
            _unzip(archive, temporary)
        else:
            _untar(archive, temporary)
        for required in data_set.required:
            if not (temporary / required.path).exists():
                raise ValueError(f"{archive} does not hold {required.path}; nothing of it is unpacked")
        target = folder / str(data_set.unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        (temporary / str(data_set.unpacked)).rename(target)
    except (tarfile.TarError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{archive} is refused: {error}; nothing of it is unpacked") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


# --- helpers ------------------------------------------------------------------------------------------------------


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


def _write_error(error: OSError, folder: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"there is no room left in {folder} ({error.strerror}); make room and run this again: it goes on"
    return f"{error.filename or folder} cannot be written ({error.strerror or error})"
