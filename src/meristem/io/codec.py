"""A nested state as JSON and a list of tensors and arrays, and back: exactly, and without pickle.

None, bool, int, finite float, str and list are JSON as they are, everything else is {tag: content}.
"""

from __future__ import annotations

import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from meristem.errors import FileError

KINDS = "biufcmMSU"  # numpy: everything without Python objects or fields
_DEPTH = 100  # levels of nesting; far from what overflows the stack, and a state that contains itself gets there
_MAP_TAGS: dict[Any, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
_KNOWN = "tensors, arrays, numbers, strings, None, lists, tuples and dicts"

Leaf: TypeAlias = "Tensor | np.ndarray[Any, Any]"
Leaves: TypeAlias = "dict[int, tuple[int, Leaf]]"  # by id: position and the leaf itself
_Trail: TypeAlias = "tuple[str | int, ...]"


def encode(value: Any, trail: _Trail, leaves: Leaves) -> Any:
    """Return the JSON form of a value; its tensors and arrays go to ``leaves`` by their id, with their position."""
    if len(trail) > _DEPTH:
        raise FileError(f"{_place(trail[:8])} is nested more than {_DEPTH} levels deep, or contains itself; flatten it")
    kind: Any = type(value)
    if value is None or kind is bool:
        return value
    if kind in (int, float, str):
        return _encode_plain(value)
    if kind is list or kind is tuple:
        items = [encode(item, (*trail, index), leaves) for index, item in enumerate(value)]
        return items if kind is list else {"tuple": items}
    if kind in _MAP_TAGS:
        return {_MAP_TAGS[kind]: _encode_map(value, trail, leaves)}
    if kind in (Tensor, nn.Parameter) or kind is np.ndarray:
        _check_leaf(value, trail)
        return {"block": leaves.setdefault(id(value), (len(leaves), value))[0]}
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


def _encode_map(value: Mapping[Any, Any], trail: _Trail, leaves: Leaves) -> list[Any]:
    pairs = []
    for key, item in value.items():
        if type(key) not in (str, int):
            raise FileError(
                f"{_place(trail)} has the key {key!r} of type {type(key).__name__}, which cannot be stored; "
                "only str and int can"
            )
        pairs.append([_encode_plain(key), encode(item, (*trail, key), leaves)])
    if not isinstance(value, OrderedDict):
        return pairs
    # Module.state_dict() keeps the versions of its modules there, and load_state_dict() looks at them.
    return [pairs, encode(getattr(value, "_metadata", None), (*trail, "_metadata"), leaves)]


def _check_leaf(value: Leaf, trail: _Trail) -> None:
    if isinstance(value, Tensor):
        plain = value.layout == torch.strided and not value.is_quantized and not value.is_nested
        if not plain or value.device.type == "meta":
            what = "on the meta device" if plain else "sparse, nested or quantized"
            raise FileError(f"{_place(trail)} is a tensor that is {what} and cannot be stored; only dense ones can")
    elif value.dtype.kind not in KINDS or not value.dtype.itemsize:
        raise FileError(
            f"{_place(trail)} is a numpy array of type {value.dtype} and cannot be stored; only {_KNOWN} can"
        )


def _place(trail: _Trail) -> str:
    """``("optimizer", "groups", 0)`` -> ``optimizer.groups[0]``."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in trail)
    return text.removeprefix(".") or "the state"


def decode(node: Any, leaves: Sequence[Leaf]) -> Any:
    """Return the value that :func:`encode` made ``node`` of."""
    if node is None or isinstance(node, (bool, int, float, str)):
        return node
    if isinstance(node, list):
        return [decode(item, leaves) for item in node]
    ((tag, body),) = node.items()
    if tag == "tuple":
        return tuple([decode(item, leaves) for item in body])
    if tag == "block":
        return leaves[as_whole_number(body)]
    if tag == "scalar":
        return _decode_scalar(*body)
    if tag == "npstr":
        return np.str_(_decode_plain(body))
    if tag == "dict":
        return _decode_pairs(body, leaves)
    if tag == "counter":
        return Counter(_decode_pairs(body, leaves))
    if tag == "ordered":
        return _decode_ordered(body, leaves)
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


def _decode_pairs(pairs: Any, leaves: Sequence[Leaf]) -> dict[Any, Any]:
    return {_decode_plain(key): decode(item, leaves) for key, item in pairs}


def _decode_ordered(body: Any, leaves: Sequence[Leaf]) -> OrderedDict[Any, Any]:
    pairs, metadata = body
    ordered = OrderedDict(_decode_pairs(pairs, leaves))
    if metadata is not None:
        ordered._metadata = decode(metadata, leaves)  # type: ignore[attr-defined]
    return ordered


def as_whole_number(value: Any) -> int:
    """Return ``value``, which must be an int of at least 0."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return value
