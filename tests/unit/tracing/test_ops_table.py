"""The table of operations: every entry is about an operation that torch has, and the shapes it gives are torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from meristem.tracing.meta_results import MetaResults
from meristem.tracing.operation import is_pointwise, signature, without_underscore
from meristem.tracing.ops.table import OPS, UNLISTED

# Names of other versions and devices of torch, and of functions that torch never dispatches.
NOT_IN_EVERY_TORCH = {"_fused_rms_norm", "_scaled_dot_product_cudnn_attention", "sym_size", "sym_numel"}


def exists(name: str) -> bool:
    return hasattr(torch.ops.aten, name) or name in NOT_IN_EVERY_TORCH


def test_entries_are_operations_of_torch() -> None:
    assert not [name for name in OPS if not name.endswith("_") and not exists(name)]


def test_an_entry_without_a_rule_is_pointwise() -> None:
    for name, op in OPS.items():
        if op.rule is None and not name.endswith("_"):
            packet = getattr(torch.ops.aten, name)
            assert is_pointwise(getattr(packet, packet.overloads()[0]), name), name


def test_the_in_place_form_has_the_entry_of_the_operation() -> None:
    assert OPS["relu_"].light
    assert OPS["add"].shape is not None
    assert OPS["add_"].shape is None  # a new tensor would not be in place
    assert OPS["normal_"].rule is not OPS["normal"].rule  # has one of its own
    assert without_underscore("squeeze_") == "squeeze"


def _meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


X = _meta(2, 3, 4, 4)
IMAGE = X.to(memory_format=torch.channels_last)
HALF = torch.empty(4, 8, device="meta", dtype=torch.bfloat16)
ENDS = torch.empty(2, device="meta", dtype=torch.int32)
COUNTS, SINGLE, FLAGS = _meta(2, 3, 4, 4, dtype=torch.int64), _meta(2, 3, 1, 1), X > 0
ONES, ROW, TOKENS = _meta(3), _meta(4), _meta(2, 5, 4)
NORM = (ONES, ONES, ONES, ONES)
KERNEL, PLAIN = _meta(6, 3, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0])
aten = torch.ops.aten
CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "add": (aten.add.Tensor, (X, X)),
    "add in two formats": (aten.add.Tensor, (X, IMAGE)),
    "add broadcast": (aten.add.Tensor, (X, ROW)),
    "add one to an image": (aten.add.Tensor, (IMAGE, SINGLE)),
    "add a number to counts": (aten.add.Tensor, (COUNTS, 1.5)),
    "add a whole number to counts": (aten.add.Tensor, (COUNTS, 1)),
    "sub": (aten.sub.Tensor, (IMAGE, IMAGE)),
    "mul": (aten.mul.Tensor, (X, X[:, :1])),
    "mul scalar tensor": (aten.mul.Tensor, (X, _meta(dtype=torch.float64))),
    "mul expanded": (aten.mul.Tensor, (SINGLE.expand(2, 3, 4, 4), SINGLE.expand(2, 3, 4, 4))),
    "mul counts": (aten.mul.Tensor, (COUNTS, X)),
    "eq": (aten.eq.Scalar, (X, 0)),
    "where": (aten.where.self, (FLAGS, X, _meta())),
    "masked_fill": (aten.masked_fill.Scalar, (X, FLAGS, 0.5)),
    "masked_fill_": (aten.masked_fill_.Scalar, (X, FLAGS, 0.5)),
    "gelu": (aten.gelu.default, (X.transpose(1, 2),)),
    "gelu of a part": (aten.gelu.default, (X[:, :, ::2],)),
    "hardswish": (aten.hardswish.default, (IMAGE,)),
    "hardswish_": (aten.hardswish_.default, (X,)),
    "pow": (aten.pow.Tensor_Scalar, (COUNTS, 2)),
    "div of counts": (aten.div.Tensor, (COUNTS, COUNTS)),
    "add_": (aten.add_.Tensor, (X, X)),
    "add_ broadcast": (aten.add_.Tensor, (X, ROW)),
    "mul_": (aten.mul_.Tensor, (X, X)),
    "relu": (aten.relu.default, (IMAGE,)),
    "relu_": (aten.relu_.default, (IMAGE,)),
    "sigmoid": (aten.sigmoid.default, (X,)),
    "sigmoid of whole numbers": (aten.sigmoid.default, (COUNTS,)),
    "sigmoid_": (aten.sigmoid_.default, (X,)),
    "tanh": (aten.tanh.default, (X.double(),)),
    "tanh_": (aten.tanh_.default, (X,)),
    "mean": (aten.mean.dim, (X, [2, 3], True)),
    "mean without": (aten.mean.dim, (X, [-1])),
    "grouped product": (
        aten._grouped_mm.default,
        (HALF, HALF[None].repeat(2, 2, 1), ENDS),
    ),
    "addmm": (aten.addmm.default, (ONES, X[0, :, 0], _meta(4, 3))),
    "addmm of a row": (aten.addmm.default, (_meta(1, 3), X[0, :, 0], _meta(4, 3))),
    "add_ to a count": (aten.add_.Tensor, (_meta(dtype=torch.int64), 1)),
    "upsample bilinear of an image": (aten.upsample_bilinear2d.default, (IMAGE, [8, 9], False)),
    "upsample nearest of an image": (aten.upsample_nearest2d.default, (IMAGE, [8, 9])),
    "mm": (aten.mm.default, (X[0, :, 0], _meta(3, 4).t())),
    "bmm": (aten.bmm.default, (TOKENS, TOKENS.transpose(1, 2))),
    "batch norm, training": (aten.native_batch_norm.default, (X, *NORM, True, 0.1, 1e-5)),
    "batch norm of an image": (aten.native_batch_norm.default, (IMAGE, *NORM, True, 0.1, 1e-5)),
    "batch norm, evaluation": (aten._native_batch_norm_legit_no_training.default, (X, *NORM, 0.1, 1e-5)),
    "layer norm": (aten.native_layer_norm.default, (TOKENS, [4], ROW, ROW, 1e-5)),
    "layer norm over two": (aten.native_layer_norm.default, (TOKENS, [5, 4], None, None, 1e-5)),
    "softmax": (aten._softmax.default, (X, -1, False)),
    "softmax turned": (aten._softmax.default, (X.transpose(2, 3), -1, False)),
    "log softmax": (aten._log_softmax.default, (X, 1, False)),
    "safe softmax": (aten._safe_softmax.default, (X, -1)),
    "convolution": (aten.convolution.default, (X, KERNEL, None, *PLAIN, 1)),
    "convolution of an image": (aten.convolution.default, (IMAGE, KERNEL, None, *PLAIN, 1)),
    "convolution, strided": (
        aten.convolution.default,
        (X, _meta(6, 1, 2, 3), _meta(6), [2, 1], [0, 2], [1, 2], False, [0, 0], 3),
    ),
    "convolution, transposed": (
        aten.convolution.default,
        (X, _meta(3, 2, 3, 3), None, [2, 3], [1, 0], [2, 1], True, [1, 0], 3),
    ),
    "convolution of a sequence": (
        aten.convolution.default,
        (TOKENS, _meta(7, 5, 3), None, [1], [1], [1], False, [0], 1),
    ),
    "clone": (aten.clone.default, (X,)),
    "clone of a turned one": (aten.clone.default, (X.transpose(1, 2),)),
    "roll": (aten.roll.default, (X, [1, -1], [2, 3])),
    "cat": (aten.cat.default, ([X, X, SINGLE.expand(2, 3, 4, 4).clone()], 1)),
    "cat of images": (aten.cat.default, ([IMAGE, IMAGE], 1)),
    "upsample nearest 1d": (aten.upsample_nearest1d.default, (TOKENS, [7])),
    "upsample nearest": (aten.upsample_nearest2d.default, (X, [8, 9])),
    "upsample nearest 3d": (aten.upsample_nearest3d.default, (X[None], [8, 9, 7])),
    "upsample bilinear": (aten.upsample_bilinear2d.default, (X, [8, 9], True)),
    "upsample bicubic": (aten.upsample_bicubic2d.default, (IMAGE, [8, 9], False)),
    "max pool": (aten.max_pool2d_with_indices.default, (X, [2, 2])),
    "embedding": (aten.embedding.default, (TOKENS[0], COUNTS[0, 0])),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_torch(name: str) -> None:
    """On the meta device a result has the shape, type and memory format of torch's, also the second time."""
    func, args = CALLS[name]
    called, results = signature(func), MetaResults()
    expected = func(*args)
    for _ in range(2):
        result = results.of(func, called, OPS.get(called.name, UNLISTED), args, {}, called.by_name(args, {}))
        if isinstance(expected, tuple):  # the statistics that a norm saves for its gradient differ between devices
            assert len(result) == len(expected)
            result = result[0]
        first = expected[0] if isinstance(expected, tuple) else expected
        assert isinstance(result, Tensor)
        assert result.is_meta
        assert (result.shape, result.dtype, result.stride()) == (first.shape, first.dtype, first.stride())
        assert (result is args[0]) == called.name.endswith("_")


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.add.Tensor, (X, ONES)),
        (aten.add_.Tensor, (ONES, X)),
        (aten.convolution.default, (X, _meta(6, 4, 3, 3), None, *PLAIN, 1)),
        (aten.convolution.default, (X, _meta(6, 3, 9, 9), None, *PLAIN, 1)),
        (aten.mm.default, (ROW[None], ROW[None])),
        (aten.addmm.default, (ROW, ONES[None], _meta(3, 3))),
        (aten.div_.Tensor, (COUNTS, 2)),
        (aten.bmm.default, (TOKENS, TOKENS)),
        (aten.native_layer_norm.default, (TOKENS, [5], None, None, 1e-5)),
        (aten.cat.default, ([X, SINGLE], 0)),
    ],
)
def test_what_torch_refuses_is_refused_in_its_words(func: Any, args: tuple[Any, ...]) -> None:
    """A size that does not fit fails as it would without us."""
    called, messages = signature(func), []
    for run in (
        lambda: func(*args),
        lambda: MetaResults().of(func, called, OPS.get(called.name, UNLISTED), args, {}, called.by_name(args, {})),
    ):
        with pytest.raises((RuntimeError, ValueError, IndexError)) as caught:
            run()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_every_shape_is_tried() -> None:
    tried = {func.overloadpacket.__name__ for func, _ in CALLS.values()}
    assert {name for name, op in OPS.items() if op.shape is not None} <= tried
