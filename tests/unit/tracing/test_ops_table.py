"""The table of operations: every entry is about an operation that torch has, and the shapes it gives are torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from meristem.tracing.operation import by_name, is_pointwise, without_underscore
from meristem.tracing.ops.table import OPS

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
    assert OPS["relu_"].shape is None  # a new tensor would not be in place
    assert OPS["normal_"].rule is not OPS["normal"].rule  # has one of its own
    assert without_underscore("squeeze_") == "squeeze"


X = torch.empty(2, 3, 4, 4, device="meta")
IMAGE = X.to(memory_format=torch.channels_last)
ONES = torch.empty(3, device="meta")
HALF = torch.empty(4, 8, device="meta", dtype=torch.bfloat16)
ENDS = torch.empty(2, device="meta", dtype=torch.int32)
NORM = (ONES, ONES, ONES, ONES)
aten = torch.ops.aten
CALLS = {
    "add": (aten.add.Tensor, (X, X)),
    "add in two formats": (aten.add.Tensor, (X, IMAGE)),
    "sub": (aten.sub.Tensor, (IMAGE, IMAGE)),
    "mul": (aten.mul.Tensor, (X, X[:, :1])),
    "add_": (aten.add_.Tensor, (X, X)),
    "mul_": (aten.mul_.Tensor, (X, X)),
    "relu": (aten.relu.default, (IMAGE,)),
    "sigmoid": (aten.sigmoid.default, (X,)),
    "sigmoid of whole numbers": (aten.sigmoid.default, (X.to(torch.int64),)),
    "sigmoid_": (aten.sigmoid_.default, (X,)),
    "tanh": (aten.tanh.default, (X.double(),)),
    "tanh_": (aten.tanh_.default, (X,)),
    "mean": (aten.mean.dim, (X, [2, 3], True)),
    "mean without": (aten.mean.dim, (X, [-1])),
    "addmm": (aten.addmm.default, (ONES, X[0, :, 0], torch.empty(4, 3, device="meta"))),
    "grouped product": (
        aten._grouped_mm.default,
        (HALF, HALF[None].repeat(2, 2, 1), ENDS),
    ),
    "batch norm, training": (aten.native_batch_norm.default, (X, *NORM, True, 0.1, 1e-5)),
    "batch norm, evaluation": (aten._native_batch_norm_legit_no_training.default, (X, *NORM, 0.1, 1e-5)),
}


@pytest.mark.parametrize("name", CALLS)
def test_shapes_are_those_of_torch(name: str) -> None:
    """Where the table gives a result of its own, it has the shape, type and memory format of torch's."""
    func, args = CALLS[name]
    shape = OPS[func.overloadpacket.__name__].shape
    assert shape is not None
    result = shape(by_name(func, args, {}))
    if result is None:  # torch is asked
        return
    expected = func(*args)
    if isinstance(expected, tuple):  # the statistics that a norm saves for its gradient differ from device to device
        assert len(result) == len(expected)
        result, expected = result[0], expected[0]
    assert isinstance(result, Tensor)
    assert (result.shape, result.dtype, result.stride()) == (expected.shape, expected.dtype, expected.stride())
    in_place = func.overloadpacket.__name__.endswith("_")
    assert (result is args[0]) == in_place


def test_every_shape_is_tried() -> None:
    tried = {func.overloadpacket.__name__ for func, _ in CALLS.values()}
    assert {name for name, op in OPS.items() if op.shape is not None} <= tried
