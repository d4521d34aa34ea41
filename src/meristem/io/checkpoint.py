"""Keep the state of a run in one file: whole or not at all, checked when read, and never pickled.

The file is a safetensors file. Its metadata hold the nesting as JSON, its tensors hold every tensor and array. It is
written and read here, not through the library, for three reasons: the digest is made while the bytes pass and covers
every one of them, what was verified and what is read come from one open file even if a new one is moved in meanwhile,
and neither way needs a second copy of the state in memory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import random
import re
import struct
import threading
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.errors import FileError
from meristem.io.codec import KINDS, Leaf, Leaves, as_whole_number, decode, encode

# Behind the 8 bytes of the header's length. The digest follows, so that it lies at one place in every file.
_START = b'{"__metadata__":{"meristem":"1","digest":"'
_NO_DIGEST = b"0" * 64
_HEADER = 100_000_000  # bytes; other readers of safetensors refuse a longer header
_CHUNK = 1 << 20
# What every reader of safetensors knows. Any other dtype is stored as bytes; its name is in the metadata.
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
# What made-up content of a file can raise.
_NOT_UNDERSTOOD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, struct.error)


_writing = threading.Lock()  # two threads of one process would share the name of the part file


def write(path: str | Path, state: Any, *, kind: str) -> None:
    """Store ``state`` in the file ``path``: the new file is there as a whole, or the old one is untouched.

    ``kind`` says what the state is; `read` wants the same. The state is nested dicts (keys: str or int), lists and
    tuples of tensors, numpy arrays, numbers, strings and None. Tensors on any device; they come back on the CPU, as
    plain tensors, with their strides if these are without gaps and else contiguous. A tensor or
    array that occurs twice is stored once. The state must not change while it is written.
    """
    path = Path(path)
    leaves_by_id: Leaves = {}
    root = encode(state, (), leaves_by_id)
    leaves = [leaf for _, leaf in leaves_by_id.values()]
    header = _header(kind, root, leaves)
    try:
        if path.is_dir():
            raise FileError(f"{path} is a folder; give the path of a file to write")
        path.parent.mkdir(parents=True, exist_ok=True)
        with _writing:
            _replace(path, header, leaves)
    except OSError as error:
        raise FileError(
            f"{path} could not be written ({error.strerror or error}); "
            "check the free space and the permissions there, or give another path"
        ) from None
    _sweep(path)


def read(path: str | Path, *, kind: str) -> Any:
    """Return the state that `write` stored in ``path``, bit for bit. Nothing in the file is ever executed."""
    path = Path(path)
    try:
        if not path.exists():
            raise FileError(f"{path} does not exist; give a file that was written as {kind!r}")
        if not path.is_file():
            raise FileError(f"{path} is not a file; give a file that was written as {kind!r}")
        with path.open("rb") as file:
            _verify(file, path)
            return _unpack(file, path, kind)
    except OSError as error:
        raise FileError(f"{path} could not be read ({error.strerror or error}); check its permissions") from None
    except _NOT_UNDERSTOOD as error:
        # The digest fits, so this was made like this. It needs no secret: a digest finds damage, not ill will.
        raise FileError(
            f"{path} is not understood ({type(error).__name__}: {error}); use an earlier checkpoint"
        ) from None


def random_state() -> dict[str, Any]:
    """Return the random state of torch (CPU and every CUDA device), Python and numpy; `write` can store it."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Go on with the random numbers from what `random_state` gave.

    CUDA devices are matched by position; one that is missing on either side is left out.
    """
    try:
        python, others, cpu, cuda = state["python"], state["numpy"], state["torch"], state["cuda"]
        random.setstate(python)
        np.random.set_state(others)
        torch.set_rng_state(cpu)
        for device in range(min(len(cuda), torch.cuda.device_count())):
            torch.cuda.set_rng_state(cuda[device], device)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(
            f"the random state is not understood ({type(error).__name__}: {error}); give what random_state() gave"
        ) from None


# --- the file -----------------------------------------------------------------------------------------------------


def _replace(path: Path, header: bytes, leaves: Sequence[Leaf]) -> None:
    """Write beside the target and move it into place, so that no half-written file is ever seen under its name."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            digest = hashlib.sha256(header)
            file.write(header)
            for leaf in leaves:
                data = _data(leaf)
                digest.update(data)
                file.write(data)
            file.seek(8 + len(_START))
            file.write(digest.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        _sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Make the move into place outlive a power cut."""
    if os.name != "posix":  # a folder cannot be opened elsewhere
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot; the file is there
            raise
    finally:
        os.close(handle)


def _sweep(path: Path) -> None:
    """Remove what killed writers of this very target left beside it. A part of a running process stays."""
    part = re.compile(rf"\.{re.escape(path.name)}\.([1-9][0-9]*)\.part")
    # The checkpoint is written; whatever goes wrong here may not turn that into a failure.
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            match = part.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False) and not _running(int(match[1])):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def _running(pid: int) -> bool:
    """Whether there may be such a process: in doubt, yes."""
    if os.name != "posix":  # os.kill(pid, 0) is no mere question elsewhere
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _verify(file: BufferedReader, path: Path) -> None:
    """Compare the digest in the file with its content, before anything of it is parsed."""
    start = file.read(8 + len(_START))
    if start[8:] != _START:
        raise FileError(f"{path} is not a file of meristem.io.checkpoint, or is cut short; give one that it wrote")
    stored = file.read(len(_NO_DIGEST))
    digest = hashlib.sha256(start + _NO_DIGEST)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    if digest.hexdigest().encode() != stored:
        raise FileError(
            f"{path} is damaged or cut short (its content does not fit its digest); use an earlier checkpoint"
        )


def _unpack(file: BufferedReader, path: Path, kind: str) -> Any:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    (length,) = struct.unpack("<Q", file.read(8))
    if length > size - 8:
        raise ValueError("the header is longer than the file")
    header = json.loads(file.read(length))
    metadata = header["__metadata__"]
    if metadata["kind"] != kind:
        raise FileError(f"{path} holds {metadata['kind']!r}, expected {kind!r}; give a file of that kind")
    leaves: list[Leaf] = []
    for spec in json.loads(metadata["blocks"]):
        begin, end = header[str(len(leaves))]["data_offsets"]
        if not 0 <= begin <= end <= size - 8 - length:
            raise ValueError("a tensor lies outside the file")
        leaf = _empty(spec, end - begin)
        file.seek(8 + length + begin)
        if file.readinto(_data(leaf)) != end - begin:
            raise ValueError("the file became shorter")
        leaves.append(leaf)
    return decode(json.loads(metadata["state"]), leaves)


def _header(kind: str, root: Any, leaves: Sequence[Leaf]) -> bytes:
    """The length and the header of a safetensors file, without the digest."""
    metadata = {
        "kind": kind,
        "state": _json(root),
        "blocks": _json([_spec(leaf) for leaf in leaves]),
    }
    entries, end = {}, 0
    for index, leaf in enumerate(leaves):
        begin, end = end, end + leaf.nbytes
        entries[str(index)] = {**_as_seen(leaf), "data_offsets": [begin, end]}
    # Both are objects with other ones before or after them: cut off the brace and go on.
    rest = b'",' + _json(metadata)[1:].encode() + (b"," + _json(entries)[1:].encode() if entries else b"}")
    header = _START + _NO_DIGEST + rest
    header += b" " * (-len(header) % 8)
    if len(header) > _HEADER:
        raise FileError(
            f"the state takes {len(header)} bytes without its tensors and arrays, more than the {_HEADER} that fit; "
            "hold long lists of numbers as arrays"
        )
    return struct.pack("<Q", len(header)) + header


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# --- tensors and arrays -------------------------------------------------------------------------------------------


def _spec(leaf: Leaf) -> dict[str, Any]:
    """What `_empty` needs to make such a leaf again."""
    shape = list(leaf.shape)
    if isinstance(leaf, Tensor):
        stride = list(leaf.stride()) if _gapless(leaf.shape, leaf.stride()) else None
        return {"tensor": str(leaf.dtype).removeprefix("torch."), "shape": shape, "stride": stride}
    return {"array": leaf.dtype.str, "shape": shape, "order": "F" if leaf.flags.fnc else "C"}


def _as_seen(leaf: Leaf) -> dict[str, Any]:
    """How other readers of safetensors see a leaf: as it is if they know such tensors, else as a row."""
    if isinstance(leaf, Tensor) and leaf.dtype in _DTYPES:
        row = _gapless(leaf.shape, leaf.stride()) and not leaf.is_contiguous()
        return {"dtype": _DTYPES[leaf.dtype], "shape": [leaf.numel()] if row else list(leaf.shape)}
    return {"dtype": "U8", "shape": [leaf.nbytes]}


def _gapless(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements fill a stretch of memory, each place once: contiguous, channels_last, transposed, ..."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if step != expected:
            return 0 in shape
        expected *= size
    return True


def _data(leaf: Leaf) -> memoryview:
    """The bytes of a leaf in the order they lie in memory: the memory itself where that is possible."""
    if not isinstance(leaf, Tensor):
        dense = np.ascontiguousarray(leaf.T if leaf.flags.fnc else leaf)
        return dense.reshape(-1).view(np.uint8).data
    gapless = _gapless(leaf.shape, leaf.stride())
    leaf = leaf.detach().cpu().resolve_conj().resolve_neg()
    leaf = leaf if gapless else leaf.contiguous()
    row: np.ndarray[Any, Any] = leaf.as_strided((leaf.numel(),), (1,)).view(torch.uint8).numpy()
    return row.data


def _empty(spec: Any, nbytes: int) -> Leaf:
    """A leaf to read into. Its size is compared first: a made-up shape must not take all memory."""
    shape = [as_whole_number(size) for size in spec["shape"]]
    if "array" in spec:
        kind = np.dtype(str(spec["array"]))
        if kind.kind not in KINDS or kind.itemsize * math.prod(shape) != nbytes:
            raise ValueError("an array does not fit its bytes")
        return np.empty(shape, kind, order="F" if spec["order"] == "F" else "C")
    dtype = getattr(torch, str(spec["tensor"]), None)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize * math.prod(shape) != nbytes:
        raise ValueError("a tensor does not fit its bytes")
    if spec["stride"] is None:
        return torch.empty(shape, dtype=dtype, device="cpu")
    stride = [as_whole_number(step) for step in spec["stride"]]
    if not _gapless(shape, stride):
        raise ValueError("a tensor does not fit its strides")
    return torch.empty_strided(shape, stride, dtype=dtype, device="cpu")
