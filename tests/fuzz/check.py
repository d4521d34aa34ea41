"""What must hold for any module: trace it, resize it at random, and compare it with the masked reference."""

from __future__ import annotations

import copy
import inspect
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import meristem
from fuzz.recipe import Recipe, build
from meristem import Live, Space
from meristem.testing import masked_reference
from meristem.tracing.model_copy import copy_with, tensors_in

OUTPUT_TOLERANCE = 1e-9  # relative to the largest value
GRADIENT_TOLERANCE = 1e-6
_NOT_COUNTED_BY_TORCH = {  # flops by the shapes of the arguments
    torch.ops.aten._trilinear: lambda one, form, two, *_, **__: 2 * one[0] * math.prod(form),
    torch.ops.aten.mv: lambda matrix, vector, *_, **__: 2 * math.prod(matrix),
    torch.ops.aten.dot: lambda one, two, *_, **__: 2 * math.prod(one),
    torch.ops.aten.vdot: lambda one, two, *_, **__: 2 * math.prod(one),
    torch.ops.aten._cdist_forward: lambda rows, others, *_, **__: 2 * math.prod(rows) * others[-2],
}
NOISE = 1e-8  # a gradient that is zero in theory is rounding noise in both


@dataclass(frozen=True)
class Verdict:
    """What came of a module: "equal", "refused", "invalid" (a module that does not run), or the kind of defect."""

    kind: str
    message: str = ""
    free_frac: float = 0.0

    @property
    def is_defect(self) -> bool:
        return self.kind not in ("equal", "refused", "invalid")


class DefectError(Exception):
    """Something that must not happen."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def examine(recipe: Recipe) -> Verdict:
    """Trace the module of a recipe, resize it twice, compare."""
    try:
        model, inputs = build(recipe)
        outputs = tensors_in(copy.deepcopy(model)(*inputs))
        sum(out.sum() for out in outputs).backward()
        if not all(out.isfinite().all() for out in outputs):
            return Verdict("invalid", "its outputs are not finite")
    except Exception as error:  # a fault of the grammar, not of what is tested
        return Verdict("invalid", _said(error))
    try:
        space = meristem.trace(model, inputs)
    except meristem.MeristemError as error:
        return Verdict("refused", _said(error))
    except Exception as error:
        return Verdict("trace raises", _said(error))
    try:
        _compare(model.train(recipe.seed % 2 == 0), space, inputs, random.Random(recipe.seed))
    except DefectError as defect:
        return Verdict(defect.kind, str(defect), space.free_params_frac)
    return Verdict("equal", free_frac=space.free_params_frac)


def _compare(model: nn.Module, space: Space, inputs: tuple[Tensor, ...], rng: random.Random) -> None:
    full = copy.deepcopy(model)
    frozen = {name: p.shape for name, p in model.named_parameters() if not p.requires_grad}
    live = Live(model, space)
    for plan in (_some, rng.choice((_some, _fewest, _one_less))):
        try:
            live.apply(live.plan(plan(space, rng)))
        except Exception as error:
            raise DefectError("resizing raises", _said(error)) from error
        for name, parameter in model.named_parameters():
            if name in frozen and parameter.shape != frozen[name]:
                raise DefectError("frozen", f"{name} is frozen, and lost units")
        _compare_numbers(live, full, inputs)
        _compare_counts(live, inputs)


def _some(space: Space, rng: random.Random) -> dict[str, list[int]]:
    """Some units of every group."""
    groups = space.groups.items()
    return {name: sorted(rng.sample(range(g.units), rng.randint(g.min_units, g.units))) for name, g in groups}


def _fewest(space: Space, rng: random.Random) -> dict[str, list[int]]:
    return {name: sorted(rng.sample(range(g.units), g.min_units)) for name, g in space.groups.items()}


def _one_less(space: Space, rng: random.Random) -> dict[str, list[int]]:
    groups = space.groups.items()
    return {name: sorted(rng.sample(range(g.units), max(g.min_units, g.units - 1))) for name, g in groups}


def _compare_numbers(live: Live, full: nn.Module, inputs: tuple[Any, ...]) -> None:
    try:
        reference = masked_reference(full, live.space, live.masks, inputs)
    except Exception as error:
        raise DefectError("the reference raises", _said(error)) from error
    before = {name: buffer.clone() for name, buffer in live.model.named_buffers()}
    try:
        outputs = tensors_in(live.model(*inputs))
    except Exception as error:
        raise DefectError("the live network raises", f"{_said(error)} at {live.widths}") from error
    for number, (got, expected) in enumerate(zip(outputs, reference.outputs, strict=True)):
        if expected.isfinite().all():
            _near("output", got, expected, OUTPUT_TOLERANCE, f"output {number} at {live.widths}")
    if all(out.isfinite().all() for out in reference.outputs):
        _compare_gradients(live, outputs, reference)
    for name, buffer in live.model.named_buffers():  # the full model keeps what it has counted so far, too
        buffer.copy_(before[name])


def _compare_gradients(live: Live, outputs: Sequence[Tensor], reference: Any) -> None:
    maker = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(out.shape, generator=maker, dtype=out.dtype) for out in outputs]
    live.model.zero_grad()
    pairs = [(out, grad) for out, grad in zip(outputs, cotangents, strict=True) if out.requires_grad]
    try:
        torch.autograd.backward([out for out, _ in pairs], [grad for _, grad in pairs])
    except Exception as error:
        raise DefectError("the live network raises", f"{_said(error)} in the backward pass at {live.widths}") from error
    reference.backward(cotangents)
    for name, parameter in live.model.named_parameters():
        positions = np.ix_(*[live.positions(axis) for axis in live.space.axes(name)])
        full, nothing = reference.parameters[name].grad, torch.zeros_like(parameter)
        expected = nothing if full is None else full[positions]
        got = nothing if parameter.grad is None else parameter.grad
        _near("gradient", got, expected, GRADIENT_TOLERANCE, f"gradient of {name} at {live.widths}")


def _near(kind: str, got: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    if got.shape != expected.shape:
        raise DefectError(kind, f"{what}: {tuple(got.shape)} against {tuple(expected.shape)}")
    if not got.numel():
        return
    worst, scale = (float(tensor.detach().abs().max()) for tensor in (got - expected, expected))
    if not worst <= tolerance * scale + NOISE:  # also when it is not a number
        raise DefectError(kind, f"{what}: off by {worst:.1e} of {scale:.1e}")


def _compare_counts(live: Live, inputs: tuple[Tensor, ...]) -> None:
    expected = sum(parameter.numel() for parameter in live.model.parameters())
    if (params := meristem.count_params(live.space, live.widths)) != expected:
        raise DefectError("parameters", f"{params:.0f} instead of {expected} at {live.widths}")
    # torch.einsum multiplies instead of contracting a dimension of size one, and torch counts no multiplications.
    einsum = 1 in live.widths.values() and "einsum" in inspect.getsource(type(live.model).forward)
    flops = None if einsum else _counted_flops(live.model, inputs)
    if flops is not None and 2 * (macs := meristem.count_macs(live.space, live.widths)) != flops:
        raise DefectError("multiply-adds", f"{macs:.0f} instead of {flops / 2:.0f} at {live.widths}")


def _counted_flops(model: nn.Module, inputs: tuple[Tensor, ...]) -> int | None:
    """What torch counts on the meta device; None if a module keeps tensors that do not go there."""
    on_meta = copy_with(model, lambda _, tensor: tensor.detach().to("meta"), meta=True).eval()
    try:
        with (
            FlopCounterMode(display=False, custom_mapping=_NOT_COUNTED_BY_TORCH) as counter,
            torch.no_grad(),
            torch.device("meta"),
        ):
            on_meta(*(x.to("meta") for x in inputs))
    except (RuntimeError, NotImplementedError):
        return None
    return int(counter.get_total_flops())


def _said(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:200]}"
