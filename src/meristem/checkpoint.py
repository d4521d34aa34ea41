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
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from meristem.errors import FileError

# Behind the 8 bytes of the header's length. The digest follows, so that it lies at one place in every file.
_START = b'{"__metadata__":{"meristem":"1","digest":"'
_NO_DIGEST = b"0" * 64
_DEPTH = 100  # levels of nesting; far from what overflows the stack, and a state that contains itself gets there
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
_MAPS: dict[Any, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
_KINDS = "biufcmMSU"  # numpy: everything without Python objects or fields
_KNOWN = "tensors, arrays, numbers, strings, None, lists, tuples and dicts"
# What made-up content of a file can raise.
_NOT_UNDERSTOOD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, struct.error)

_Block: TypeAlias = "Tensor | np.ndarray[Any, Any]"
_Trail: TypeAlias = "tuple[str | int, ...]"
_Held: TypeAlias = "dict[int, tuple[int, _Block]]"

_writing = threading.Lock()  # two threads of one process would share the name of the part file


def write(path: str | Path, state: Any, *, kind: str) -> None:
    """Store ``state`` in the file ``path``: the new file is there as a whole, or the old one is untouched.

    ``kind`` says what the state is; `read` wants the same. The state is nested dicts (keys: str or int), lists and
    tuples of tensors, numpy arrays, numbers, strings and None. Tensors on any device; they come back on the CPU, as
    plain tensors, with their strides if these are without gaps and else contiguous. An object held at two places is
    stored once if it is a tensor or an array. The state must not change while it is written.
    """
    path = Path(path)
    held: _Held = {}
    root = _encode(state, (), held)
    blocks = [block for _, block in held.values()]
    header = _header(kind, root, blocks)
    try:
        if path.is_dir():
            raise FileError(f"{path} is a folder; give the path of a file to write")
        path.parent.mkdir(parents=True, exist_ok=True)
        with _writing:
            _replace(path, header, blocks)
    except OSError as error:
        raise FileError(
            f"{path} could not be written ({error.strerror or error}); "
            "check the free space and the permissions there, or give another path"
        ) from None
    _sweep(path)


def read(path: str | Path, *, kind: str) -> Any:
    """The state that `write` stored in ``path``, bit for bit. Nothing in the file is ever executed."""
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
    """Where the random numbers of torch (CPU and every CUDA device), Python and numpy stand; `write` can store it."""
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


def _replace(path: Path, header: bytes, blocks: Sequence[_Block]) -> None:
    """Write beside the target and move it into place, so that no half-written file is ever seen under its name."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            digest = hashlib.sha256(header)
            file.write(header)
            for block in blocks:
                data = _data(block)
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
            found = part.fullmatch(entry.name)
            if found and entry.is_file(follow_symlinks=False) and not _running(int(found[1])):
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
        raise FileError(f"{path} is not a file of meristem.checkpoint, or is cut short; give one that it wrote")
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
    blocks: list[_Block] = []
    for spec in json.loads(metadata["blocks"]):
        begin, end = header[str(len(blocks))]["data_offsets"]
        if not 0 <= begin <= end <= size - 8 - length:
            raise ValueError("a block lies outside the file")
        block = _empty(spec, end - begin)
        file.seek(8 + length + begin)
        if file.readinto(_data(block)) != end - begin:
            raise ValueError("the file became shorter")
        blocks.append(block)
    return _decode(json.loads(metadata["state"]), blocks)


def _header(kind: str, root: Any, blocks: Sequence[_Block]) -> bytes:
    """The length and the header of a safetensors file, without the digest."""
    metadata = {
        "kind": kind,
        "state": _json(root),
        "blocks": _json([_spec(block) for block in blocks]),
    }
    entries, end = {}, 0
    for index, block in enumerate(blocks):
        begin, end = end, end + block.nbytes
        entries[str(index)] = {**_as_seen(block), "data_offsets": [begin, end]}
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


def _spec(block: _Block) -> dict[str, Any]:
    """What `_empty` needs to make such a block again."""
    shape = list(block.shape)
    if isinstance(block, Tensor):
        stride = list(block.stride()) if _gapless(block.shape, block.stride()) else None
        return {"tensor": str(block.dtype).removeprefix("torch."), "shape": shape, "stride": stride}
    return {"array": block.dtype.str, "shape": shape, "order": "F" if block.flags.fnc else "C"}


def _as_seen(block: _Block) -> dict[str, Any]:
    """How other readers of safetensors see a block: as it is if they know such tensors, else as a row."""
    if isinstance(block, Tensor) and block.dtype in _DTYPES:
        row = _gapless(block.shape, block.stride()) and not block.is_contiguous()
        return {"dtype": _DTYPES[block.dtype], "shape": [block.numel()] if row else list(block.shape)}
    return {"dtype": "U8", "shape": [block.nbytes]}


def _gapless(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements fill a stretch of memory, each place once: contiguous, channels_last, transposed, ..."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if step != expected:
            return 0 in shape
        expected *= size
    return True


def _data(block: _Block) -> memoryview:
    """The bytes of a block in the order they lie in memory: the memory itself where that is possible."""
    if not isinstance(block, Tensor):
        dense = np.ascontiguousarray(block.T if block.flags.fnc else block)
        return dense.reshape(-1).view(np.uint8).data
    gapless = _gapless(block.shape, block.stride())
    block = block.detach().cpu().resolve_conj().resolve_neg()
    block = block if gapless else block.contiguous()
    row: np.ndarray[Any, Any] = block.as_strided((block.numel(),), (1,)).view(torch.uint8).numpy()
    return row.data


def _empty(spec: Any, nbytes: int) -> _Block:
    """A block to read into. Its size is compared first: a made-up shape must not take all memory."""
    shape = [_whole(size) for size in spec["shape"]]
    if "array" in spec:
        kind = np.dtype(str(spec["array"]))
        if kind.kind not in _KINDS or kind.itemsize * math.prod(shape) != nbytes:
            raise ValueError("an array does not fit its bytes")
        return np.empty(shape, kind, order="F" if spec["order"] == "F" else "C")
    dtype = getattr(torch, str(spec["tensor"]), None)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize * math.prod(shape) != nbytes:
        raise ValueError("a tensor does not fit its bytes")
    if spec["stride"] is None:
        return torch.empty(shape, dtype=dtype, device="cpu")
    stride = [_whole(step) for step in spec["stride"]]
    if not _gapless(shape, stride):
        raise ValueError("a tensor does not fit its strides")
    return torch.empty_strided(shape, stride, dtype=dtype, device="cpu")


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return value


# --- the nesting --------------------------------------------------------------------------------------------------
# Python -> JSON: None, bool, int, finite float, str and list as they are, everything else as {tag: content}.


def _encode(value: Any, trail: _Trail, held: _Held) -> Any:
    """The JSON form of a value; its tensors and arrays go to ``held`` by their id, with their position."""
    if len(trail) > _DEPTH:
        raise FileError(f"{_place(trail[:8])} is nested more than {_DEPTH} levels deep, or contains itself; flatten it")
    kind: Any = type(value)
    if value is None or kind is bool:
        return value
    if kind in (int, float, str):
        return _encode_plain(value)
    if kind is list or kind is tuple:
        items = [_encode(item, (*trail, index), held) for index, item in enumerate(value)]
        return items if kind is list else {"tuple": items}
    if kind in _MAPS:
        return {_MAPS[kind]: _encode_map(value, trail, held)}
    if kind in (Tensor, nn.Parameter) or kind is np.ndarray:
        _check_block(value, trail)
        return {"block": held.setdefault(id(value), (len(held), value))[0]}
    if kind is np.str_:
        return {"npstr": _encode_plain("".join(value))}  # str() would cut off zeros at the end
    if isinstance(value, np.generic) and value.dtype.kind in "biufcmM":
        return {"scalar": [value.dtype.str, value.tobytes().hex()]}
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise FileError(f"{_place(trail)} is of type {name} and cannot be stored; only {_KNOWN} can")


def _encode_plain(value: float | str) -> Any:
    """JSON holds these as they are, but for numbers and strings that it cannot hold exactly."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:  # half a character, as in a file name that is no UTF-8
            return {"text": value.encode("utf-8", "surrogatepass").hex()}
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else {"int": hex(value)}
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}


def _encode_map(value: Mapping[Any, Any], trail: _Trail, held: _Held) -> list[Any]:
    pairs = []
    for key, item in value.items():
        if type(key) not in (str, int):
            raise FileError(
                f"{_place(trail)} has the key {key!r} of type {type(key).__name__}, which cannot be stored; "
                "only str and int can"
            )
        pairs.append([_encode_plain(key), _encode(item, (*trail, key), held)])
    if not isinstance(value, OrderedDict):
        return pairs
    # Module.state_dict() keeps the versions of its modules there, and load_state_dict() looks at them.
    return [pairs, _encode(getattr(value, "_metadata", None), (*trail, "_metadata"), held)]


def _check_block(value: _Block, trail: _Trail) -> None:
    if isinstance(value, Tensor):
        plain = value.layout == torch.strided and not value.is_quantized and not value.is_nested
        if not plain or value.device.type == "meta":
            what = "on the meta device" if plain else "sparse, nested or quantized"
            raise FileError(f"{_place(trail)} is a tensor that is {what} and cannot be stored; only dense ones can")
    elif value.dtype.kind not in _KINDS or not value.dtype.itemsize:
        raise FileError(
            f"{_place(trail)} is a numpy array of type {value.dtype} and cannot be stored; only {_KNOWN} can"
        )


def _place(trail: _Trail) -> str:
    """``("optimizer", "groups", 0)`` -> ``optimizer.groups[0]``."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in trail)
    return text.removeprefix(".") or "the state"


def _decode(node: Any, blocks: Sequence[_Block]) -> Any:
    if node is None or isinstance(node, (bool, int, float, str)):
        return node
    if isinstance(node, list):
        return [_decode(item, blocks) for item in node]
    ((tag, body),) = node.items()
    if tag == "tuple":
        return tuple([_decode(item, blocks) for item in body])
    if tag == "block":
        return blocks[_whole(body)]
    if tag == "scalar":
        return _decode_scalar(*body)
    if tag == "npstr":
        return np.str_(_decode_plain(body))
    if tag == "dict":
        return _decode_pairs(body, blocks)
    if tag == "counter":
        return Counter(_decode_pairs(body, blocks))
    if tag == "ordered":
        return _decode_ordered(body, blocks)
    return _decode_plain(node)


def _decode_plain(node: Any) -> Any:
    if isinstance(node, (int, str)):
        return node
    ((tag, body),) = node.items()
    if tag == "text":
        return bytes.fromhex(body).decode("utf-8", "surrogatepass")
    if tag == "int":
        return int(body, 16)
    if tag == "float":
        return struct.unpack(">d", bytes.fromhex(body))[0]
    raise ValueError(f"{tag!r} is not known")


def _decode_scalar(name: str, data: str) -> Any:
    kind = np.dtype(str(name))
    if kind.kind not in "biufcmM":
        raise ValueError(f"{name!r} is not known")
    return np.frombuffer(bytes.fromhex(data), kind)[0]


def _decode_pairs(pairs: Any, blocks: Sequence[_Block]) -> dict[Any, Any]:
    return {_decode_plain(key): _decode(item, blocks) for key, item in pairs}


def _decode_ordered(body: Any, blocks: Sequence[_Block]) -> OrderedDict[Any, Any]:
    pairs, metadata = body
    ordered = OrderedDict(_decode_pairs(pairs, blocks))
    if metadata is not None:
        ordered._metadata = _decode(metadata, blocks)  # type: ignore[attr-defined]
    return ordered
