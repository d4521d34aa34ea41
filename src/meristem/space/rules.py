"""What is known about layer types: which remembered sizes follow which tensor, and which dimensions must agree.

Nearly everything is learnt from the operations a model runs; a rule is needed only where a layer remembers a size that
no operation shows, or demands an equality that only its code knows. Users pass rules for their own layers to ``trace``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class LayerRule:
    """``sizes``: (attribute, tensor, dim) triples; an entry of a tuple is written ``"normalized_shape[0]"``.

    ``ties``: lists of (tensor, dim) that must keep the same units. ``floors``: (tensor, dim, least) triples, where a
    dimension may not have fewer positions than that.
    """

    layer: type[nn.Module]
    sizes: Callable[[nn.Module], Sequence[tuple[str, str, int]]]
    ties: Callable[[nn.Module], Sequence[Sequence[tuple[str, int]]]] = lambda layer: ()
    floors: Callable[[nn.Module], Sequence[tuple[str, int, int]]] = lambda layer: ()


@dataclass(frozen=True)
class OpRule:
    """An operation of the user's (``"mylib::op"``) that treats labels ``like`` a known one, such as ``"relu"``."""

    op: str
    like: str


Rule = LayerRule | OpRule


def _recurrent_sizes(layer: nn.Module) -> list[tuple[str, str, int]]:
    assert isinstance(layer, nn.RNNBase)
    sizes = [("input_size", "weight_ih_l0", 1)]
    if layer.proj_size:
        return [*sizes, ("proj_size", "weight_hr_l0", 0), ("hidden_size", "weight_hr_l0", 1)]
    return [*sizes, ("hidden_size", "weight_hh_l0", 1)]


def _recurrent_ties(layer: nn.Module) -> list[list[tuple[str, int]]]:
    """One ``hidden_size`` serves every layer and direction."""
    assert isinstance(layer, nn.RNNBase)
    hidden = [(name, 1) for name, _ in layer.named_parameters() if name.startswith("weight_hh")]
    projected = [(name, 1) for name, _ in layer.named_parameters() if name.startswith("weight_hr")]
    return [hidden, projected]


def _recurrent_floors(layer: nn.Module) -> list[tuple[str, int, int]]:
    """Torch tells a projected LSTM by its two sizes: the hidden one must stay above what the projection can have."""
    assert isinstance(layer, nn.RNNBase)
    return [("weight_hr_l0", 1, layer.proj_size + 1)] if layer.proj_size else []


def _normalized_sizes(layer: nn.Module) -> list[tuple[str, str, int]]:
    shape = layer.normalized_shape
    assert isinstance(shape, tuple)
    return [(f"normalized_shape[{dim}]", "weight", dim) for dim in range(len(shape))]


def _attention_sizes(layer: nn.Module) -> list[tuple[str, str, int]]:
    return [
        ("embed_dim", "out_proj.weight", 0),
        ("kdim", "out_proj.weight", 0),
        ("vdim", "out_proj.weight", 0),
    ]


BUILT_IN: tuple[LayerRule, ...] = (
    LayerRule(nn.Linear, lambda layer: [("in_features", "weight", 1), ("out_features", "weight", 0)]),
    LayerRule(nn.Embedding, lambda layer: [("embedding_dim", "weight", 1)]),
    LayerRule(nn.EmbeddingBag, lambda layer: [("embedding_dim", "weight", 1)]),
    LayerRule(nn.RMSNorm, _normalized_sizes),
    LayerRule(nn.PReLU, lambda layer: [("num_parameters", "weight", 0)]),
    LayerRule(nn.RNNBase, _recurrent_sizes, _recurrent_ties, _recurrent_floors),
    LayerRule(nn.RNNCellBase, lambda layer: [("input_size", "weight_ih", 1), ("hidden_size", "weight_hh", 1)]),
    LayerRule(nn.MultiheadAttention, _attention_sizes),
)

# Layers whose code demands that inner and outer width are the same number: heads are tied to the width they read.
HEADS_TIED_TO_INPUT: tuple[type[nn.Module], ...] = (nn.MultiheadAttention,)


_SIZED_BY_ATTRIBUTES = (nn.MultiheadAttention, nn.Unflatten, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def attribute_and_index(name: str) -> tuple[str, int | None]:
    """
    >>> attribute_and_index("num_heads"), attribute_and_index("normalized_shape[0]")
    (('num_heads', None), ('normalized_shape', 0))
    """
    attribute, bracket, index = name.rstrip("]").partition("[")
    return attribute, int(index) if bracket else None


def reshapes_by_attributes(module: nn.Module) -> bool:
    """Whether views inside this module may take their sizes from its attributes. Most of torch's own never do."""
    ours = type(module).__module__.startswith("torch.nn.modules")
    return not ours or isinstance(module, _SIZED_BY_ATTRIBUTES)


def write_size(module: nn.Module, name: str, index: int | None, value: int) -> None:
    """Set a size that a module remembers; ``index`` says which entry, when it is a tuple."""
    if index is None:
        setattr(module, name, value)
    else:
        old = getattr(module, name)
        setattr(module, name, type(old)([*old[:index], value, *old[index + 1 :]]))


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
