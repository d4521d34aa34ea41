"""Dimensions of size one that ``einsum`` and ``tensordot`` let meet larger ones: these are summed first, in silence.

Where a single unit is left, such a function computes something, but not what it did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from meristem.tracing.operation import flat

SUM_WHAT_IS_ONE = frozenset({"einsum", "tensordot"})


def broadcast_letters(name: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The letters whose sizes differ between the operands of such a function; positions for ``tensordot``."""
    given = list(arguments.get("args", ()))
    operands = [value for value in flat([given, arguments.get("operands", ())]) if isinstance(value, Tensor)]
    if name == "tensordot" and len(operands) == 2:
        pairs = _tensordot_pairs(operands[0], operands[1], given[2] if len(given) > 2 else arguments.get("dims", 2))
        return tuple(f"{one} {two}" for one, two in pairs if operands[0].shape[one] != operands[1].shape[two])
    equation = given[0] if given else arguments.get("equation")
    if not isinstance(equation, str):  # operands and lists of numbers in turn
        terms = [tuple(str(each) for each in value) for value in given[1::2]][: len(operands)]
    else:
        letters = equation.partition("->")[0].replace(" ", "").replace("...", ".")
        terms = [tuple(term) for term in letters.split(",")]
    sizes: dict[str, set[int]] = {}
    for term, operand in zip(terms, operands, strict=False):
        before, _, after = "".join(term).partition(".") if isinstance(equation, str) else (term, "", ())
        for letter, size in zip(before, operand.shape, strict=False):
            sizes.setdefault(letter, set()).add(size)
        for letter, size in zip(reversed(after), reversed(operand.shape), strict=False):
            sizes.setdefault(letter, set()).add(size)
    return tuple(sorted(letter for letter, found in sizes.items() if len(found) > 1))


def _tensordot_pairs(first: Tensor, second: Tensor, dims: Any) -> Sequence[tuple[int, int]]:
    if isinstance(dims, int):
        return [(first.dim() - dims + at, at) for at in range(dims)]
    one, two = ([int(each) for each in flat([part])] for part in dims)
    return list(zip(one, two, strict=False))
