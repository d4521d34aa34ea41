"""Sizes that modules remember in attributes: recognised by well-known names when a view has just used them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from meristem.space.arrays import IntArray

_SIZED_BY_ATTRIBUTES = (nn.MultiheadAttention, nn.Unflatten, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def reshapes_by_attributes(module: nn.Module) -> bool:
    """Whether views inside this module may take their sizes from its attributes. Most of torch's own never do."""
    is_torch_layer = type(module).__module__.startswith("torch.nn.modules")
    return not is_torch_layer or isinstance(module, _SIZED_BY_ATTRIBUTES)


def sizes_of_view(module: nn.Module, vectors: Sequence[IntArray]) -> Iterator[tuple[str, int | None, IntArray]]:
    """The attributes of ``module`` that are sizes of the dimensions a view has made: name, index in a tuple, labels.

    ``vectors`` are the distinct labels of each dimension of the view that has units.
    """
    sizes = {name: value for name, value in vars(module).items() if type(value) is int}
    if len(vectors) == 1:
        (ids,) = vectors
        names = [name for name, value in sizes.items() if value == len(ids)]
        heads = [name for name in names if counts_heads(name) or sizes_a_head(name)]
        yield from ((name, None, ids) for name in names if sizes_a_width(name))
        if len(heads) == 1:  # heads and head size of equal value cannot be told apart from one dimension alone
            yield heads[0], None, ids
    elif vectors:
        rows, columns = vectors[-2:]
        yield from ((name, None, rows) for name, value in sizes.items() if value == len(rows) and counts_heads(name))
        yield from (
            (name, None, columns) for name, value in sizes.items() if value == len(columns) and sizes_a_head(name)
        )
    for name, value in vars(module).items():
        if isinstance(value, tuple) and ("shape" in name or "size" in name):
            yield from ((name, value.index(len(ids)), ids) for ids in vectors if value.count(len(ids)) == 1)


def counts_heads(name: str) -> bool:
    """Whether an attribute of this name counts attention heads or groups of channels.

    >>> [counts_heads(name) for name in ("num_heads", "n_head", "head_dim", "d_head", "groups", "heads", "header")]
    [True, True, False, False, True, True, False]
    """
    if sizes_a_head(name):
        return False
    return name in {"groups", "num_groups", "nhead", "num_kv", "h"} or (_mentions_head(name) and not _is_a_size(name))


def sizes_a_head(name: str) -> bool:
    """Whether an attribute of this name is the size of one head.

    >>> [sizes_a_head(name) for name in ("head_dim", "dim_head", "attention_head_size", "num_heads", "dim")]
    [True, True, True, False, False]
    """
    return name in {"d_k", "d_v", "d_kv", "key_dim", "val_dim", "d_head"} or (
        _mentions_head(name) and _is_a_size(name) and not name.startswith("all")
    )


def sizes_a_width(name: str) -> bool:
    """Whether an attribute of this name is the width of a layer.

    >>> [sizes_a_width(name) for name in ("embed_dim", "n_embd", "hidden_size", "split_size", "num_heads", "stride")]
    [True, True, True, True, False, False]
    """
    words = (
        "dim",
        "size",
        "embd",
        "width",
        "channels",
        "features",
        "planes",
        "hidden",
        "inner",
        "d_model",
        "chs",
    )
    if name in {"nf", "nx"}:
        return True
    return any(word in name for word in words) and not sizes_a_head(name) and "kernel" not in name


def _mentions_head(name: str) -> bool:
    return any(word in ("head", "heads", "nheads") for word in name.lower().split("_"))


def _is_a_size(name: str) -> bool:
    return any(word in ("dim", "size", "features", "channels", "width") for word in name.lower().split("_"))
