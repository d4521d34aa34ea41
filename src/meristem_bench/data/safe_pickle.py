"""Reads pickles of byte matrices without running what a file asks for."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np


class ForeignNameError(Exception):
    """A pickle asks for something that is not on the list."""


class PickledArray:
    """Stands in for a numpy array and for the function that builds one: keeps what the pickle says about it."""

    def __init__(self, *arguments: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def as_byte_matrix(self) -> Any:
        """The array, or None if the pickle describes anything but a matrix of bytes."""
        match self.state:
            case (_, (int(rows), int(columns)), _PickledType(name=b"u1" | "u1"), fortran, bytes(content)):
                if min(rows, columns) < 0 or rows * columns != len(content):
                    return None
                order: Any = "F" if fortran else "C"
                return np.frombuffer(content, dtype=np.uint8).reshape((rows, columns), order=order)
        return None


def load_pickle(content: bytes) -> Any:
    """The content of a pickle, with a ``PickledArray`` for each array. A damaged one can raise almost anything."""
    _check_memory(content)
    return _Unpickler(io.BytesIO(content), encoding="bytes").load()


class _PickledType:
    """Stands in for ``numpy.dtype``: keeps the name, ignores the rest."""

    def __init__(self, *arguments: Any) -> None:
        self.name = arguments[0] if arguments else None

    def __setstate__(self, state: Any) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    """Replaces the three names that the files contain by the classes above: nothing of numpy is called.

    All of them have a ``__setstate__``: a function could be changed by what the pickle builds on it.
    """

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case ("numpy.core.multiarray", "_reconstruct") | ("numpy", "ndarray"):
                return PickledArray
            case ("numpy", "dtype"):
                return _PickledType
        raise ForeignNameError(printable(f"{module}.{name}"))


def _check_memory(content: bytes) -> None:
    """Refuse a few bytes that would make the reader take gigabytes: a high index in its memo, a false length."""
    argument: Any
    for count, (operation, argument, _) in enumerate(pickletools.genops(content)):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= argument <= count:
            raise pickle.UnpicklingError(f"place {argument} in a table of {count}")
        if operation.name.startswith("EXT"):  # a name by number: those of another library may be kept in memory
            raise ForeignNameError(f"name number {argument}")


def printable(text: str) -> str:
    """The text as one line of ASCII, whatever a file puts into it."""
    return ascii(text)[1:-1][:200]
