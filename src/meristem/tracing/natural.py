"""Operations and layers that do to what is left of a model what they do to all of it.

An operation is natural if its rule only passes dimensions on and lets some meet, whatever their sizes and labels. A
layer of torch's is natural if all that it does is, seen from outside. Both may have numbers that have to follow sizes:
``fits`` compares those. Reshapes are not natural: what becomes of a dimension that is split depends on its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as module_globals

from meristem.tracing.ops.context import OpRuleFunction
from meristem.tracing.ops.contracting import attention, contraction, convolution
from meristem.tracing.ops.elementwise import pointwise, same
from meristem.tracing.ops.lookups import embedding
from meristem.tracing.ops.moving import permute, transpose, unsqueeze
from meristem.tracing.ops.reducing import batch_norm, layer_norm, reduction, softmax

_RULES: frozenset[OpRuleFunction] = frozenset(
    (
        pointwise,
        same,
        permute,
        transpose,
        unsqueeze,
        contraction,
        batch_norm,
        layer_norm,
        softmax,
        reduction,
        embedding,
    )
)


def is_natural(rule: OpRuleFunction, args: Sequence[Any]) -> bool:
    """Whether an operation that follows this rule, with these arguments, is natural."""
    if rule is convolution:
        given, weight, groups = args[0], args[1], args[8]
        return groups == 1 or bool(groups == given.shape[1] == weight.shape[0] and weight.shape[1] == 1)
    if rule is attention:  # several queries for one key are told by their number
        return bool(args[0].shape[:-2] == args[1].shape[:-2] == args[2].shape[:-2])
    return rule in _RULES


def without_sizes(name: str, args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a natural operation but for those that have to follow sizes, and do."""
    if name == "native_layer_norm" and args[1] == [*args[0].shape[args[0].dim() - len(args[1]) :]]:
        return args[0], None, *args[2:]
    if name == "convolution" and args[8] == args[0].shape[1] == args[1].shape[0] and args[1].shape[1] == 1:
        return *args[:8], None
    return args


def has_reshapes(module: nn.Module, given: Tensor) -> bool:
    """Whether a natural layer reshapes what it is given, and then a label of a lone unit may get lost on the way."""
    return type(module) is nn.Linear and given.dim() != 2


def _always(layer: nn.Module, given: Tensor) -> bool:
    return True


def _is_convolution(layer: nn.Module, given: Tensor) -> bool:
    """One group, or one for each channel, as many as there are left."""
    weight, groups = layer.weight, layer.groups
    if layer.padding_mode != "zeros" or not isinstance(weight, Tensor) or given.dim() != weight.dim():
        return False
    return bool(groups == 1 or (groups == given.shape[1] == weight.shape[0] and weight.shape[1] == 1))


def _is_norm(layer: nn.Module, given: Tensor) -> bool:
    """It normalises over all that is left."""
    shape: Any = layer.normalized_shape
    return isinstance(shape, tuple) and [*given.shape[given.dim() - len(shape) :]] == [*shape]


def _is_table(layer: nn.Module, given: Tensor) -> bool:
    """It is only read."""
    return layer.max_norm is None


def _is_evaluated(layer: nn.Module, given: Tensor) -> bool:
    """Random numbers are drawn in training only."""
    return not layer.training


_NATURAL_LAYERS: dict[Callable[[nn.Module, Tensor], bool], tuple[type[nn.Module], ...]] = {
    _always: (
        nn.Linear,
        nn.Identity,
        nn.BatchNorm1d,
        nn.BatchNorm2d,
        nn.BatchNorm3d,
        nn.ReLU,
        nn.ReLU6,
        nn.GELU,
        nn.SiLU,
        nn.Sigmoid,
        nn.Tanh,
        nn.Hardswish,
        nn.Hardsigmoid,
        nn.Hardtanh,
        nn.ELU,
        nn.LeakyReLU,
        nn.Mish,
        nn.Softplus,
        nn.MaxPool2d,
        nn.AvgPool2d,
        nn.AdaptiveAvgPool2d,
    ),
    _is_table: (nn.Embedding,),
    _is_convolution: (nn.Conv1d, nn.Conv2d, nn.Conv3d),
    _is_norm: (nn.LayerNorm,),
    _is_evaluated: (nn.Dropout, nn.Dropout1d, nn.Dropout2d),
}
FITS: Mapping[type[nn.Module], Callable[[nn.Module, Tensor], bool]] = MappingProxyType(
    {layer: fits for fits, layers in _NATURAL_LAYERS.items() for layer in layers}
)


def is_natural_layer(module: nn.Module) -> bool:
    """Whether a module is one of torch's natural layers, as torch wrote it, with no hooks."""
    return type(module) in FITS and settings_of(module) is not None


def has_global_hooks() -> bool:
    """Whether somebody follows every module of the process."""
    return bool(module_globals._global_forward_hooks or module_globals._global_forward_pre_hooks)


def settings_of(module: nn.Module) -> tuple[Any, ...] | None:
    """The attributes of a layer but for its sizes; None if there are some that torch has not given it, or hooks."""
    found: list[Any] = []
    for name, value in vars(module).items():
        if name in _OF_EVERY_MODULE:
            continue
        kind = type(value)
        if kind is list:
            value, kind = tuple(value), tuple
        if kind not in _PLAIN:
            return None
        if name not in _SIZES:
            found += (name, value)
    return None if module._forward_hooks or module._forward_pre_hooks else tuple(found)


_OF_EVERY_MODULE = frozenset((*vars(nn.Module()), "_compiled_call_impl"))
_PLAIN = frozenset((int, float, bool, str, tuple, type(None)))
# Those that are compared with what there is, and those that no layer reads.
_NAMES_OF_SIZES = "in_features out_features in_channels out_channels groups num_features normalized_shape embedding_dim"
_SIZES = frozenset(_NAMES_OF_SIZES.split())
