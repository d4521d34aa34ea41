"""Pickles of byte matrices, read without running what a file asks for."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np


class ForeignNameError(Exception):
    """A pickle asks for something that is not on the list."""


class Matrix:
    """Stands in for a numpy array and for the function that makes one: remembers what the pickle says about it."""

    def __init__(self, *given: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def of_bytes(self) -> Any:
        """The array, or None if something else than a matrix of bytes is described."""
        match self.state:
            case (_, (int(rows), int(columns)), _Type(name=b"u1" | "u1"), fortran, bytes(content)):
                if min(rows, columns) < 0 or rows * columns != len(content):
                    return None
                order: Any = "F" if fortran else "C"
                return np.frombuffer(content, dtype=np.uint8).reshape((rows, columns), order=order)
        return None


def loaded(content: bytes) -> Any:
    """What the pickle holds, with a ``Matrix`` for each array. A damaged one can raise almost anything."""
    _check_memory(content)
    return _Unpickler(io.BytesIO(content), encoding="bytes").load()


class _Type:
    """Stands in for ``numpy.dtype``: remembers the name, ignores the rest."""

    def __init__(self, *given: Any) -> None:
        self.name = given[0] if given else None

    def __setstate__(self, state: Any) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    """Knows the three names that the files contain, and gives ours in their place: nothing of numpy is called.

    Only classes with a ``__setstate__`` are given: a function could be changed by what the pickle builds on it.
    """

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case ("numpy.core.multiarray", "_reconstruct") | ("numpy", "ndarray"):
                return Matrix
            case ("numpy", "dtype"):
                return _Type
        raise ForeignNameError(printable(f"{module}.{name}"))


def _check_memory(content: bytes) -> None:
    """Refuse a few bytes that make a reader take gigabytes: a place far out in its table, a length that lies."""
    argument: Any
    for count, (operation, argument, _) in enumerate(pickletools.genops(content)):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= argument <= count:
            raise pickle.UnpicklingError(f"place {argument} in a table of {count}")
        if operation.name.startswith("EXT"):  # a name by number: those of another library may be kept in memory
            raise ForeignNameError(f"name number {argument}")


def printable(text: str) -> str:
    """One line, whatever a file puts into it."""
    return ascii(text)[1:-1][:200]
