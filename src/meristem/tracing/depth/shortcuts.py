"""Shortcuts around a block: its result meets, outside of it, what went into it.

Left out, such a block would not just pass its input on: ``x + block(x)`` would become ``x + x``, ``x - block(x)``
nothing at all, ``x + block(norm(x))`` a sum with the norm.
"""

from __future__ import annotations

from itertools import permutations

from torch import Tensor

from meristem.tracing.ops.context import Arguments, tensors_of
from meristem.tracing.ops.op import Op


class Shortcuts:
    """Finds shortcuts in one run: adds the paths of the modules that have one to ``met_outside``.

    All tensors that it is shown live as long as it does: ids tell them apart.
    """

    def __init__(self, met_outside: set[str]) -> None:
        self._met_outside = met_outside
        self._calls: dict[int, list[tuple[str, Tensor]]] = {}  # by result: the module, and what went in
        self._sources: dict[int, list[Tensor]] = {}  # by result of a light or moving operation: what went in

    def module_called(self, path: str, into: Tensor, out: Tensor) -> None:
        """The module at ``path`` mapped ``into`` to ``out``."""
        self._calls.setdefault(id(out), []).append((path, into))

    def op_executed(self, op: Op, arguments: Arguments, out: Tensor) -> None:
        """Look at an operation: does a module's result meet what went into the module?"""
        if not (op.combines or op.light or op.moves):
            return
        tensors = tensors_of(arguments)
        if op.combines:
            for result, other in permutations(tensors, 2):
                self._mark_modules_between(other, result)
        if op.light or op.moves:
            sources = [value for value in tensors if value is not out and (op.moves or value.shape == out.shape)]
            self._sources.setdefault(id(out), []).extend(sources)

    def _mark_modules_between(self, other: Tensor, result: Tensor) -> None:
        """Mark the modules that made ``result`` of what ``other`` stands for."""
        for source in self._behind(result):
            for path, into in self._calls.get(id(source), []):
                # What is itself made of the result meets the result, not what went into the module.
                if {id(each) for each in self._behind(into)} & {id(each) for each in self._behind(other, source)}:
                    self._met_outside.add(path)

    def _behind(self, tensor: Tensor, end: Tensor | None = None) -> list[Tensor]:
        """A tensor and those it was made of by light or moving operations, up to ``end``, which is left out."""
        behind = {id(tensor): tensor} if tensor is not end else {}
        waiting = list(behind.values())
        while waiting:
            for source in self._sources.get(id(waiting.pop()), []):
                if source is not end and id(source) not in behind:
                    behind[id(source)] = source
                    waiting.append(source)
        return list(behind.values())
