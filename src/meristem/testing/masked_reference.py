"""Conformance checks that anyone can run on their own model: does the small live network compute what it should?

The reference is the full-size model with everything dead masked to zero, executed operation by operation. Where an
operation runs across units (a norm, a mean, a softmax), the reference runs it across the live ones; so is a number that
the model computes from their size (the scale of a softmax) that of the live ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from meristem.rules import Rule
from meristem.space.absent_blocks import leave_out
from meristem.space.arrays import BoolArray, IntArray
from meristem.space.axis import Axis
from meristem.space.space import Space
from meristem.testing.applied_functions import AppliedFunction, Apply, followed
from meristem.tracing.labelled_run import LabelledRun
from meristem.tracing.labels import Dim
from meristem.tracing.model_call import call_of
from meristem.tracing.model_copy import copy_with, named_tensors
from meristem.tracing.observations import Observations
from meristem.tracing.operation import ExecutedOp, all_numbers, signature, written_tensors
from meristem.tracing.ops.contracting import attention
from meristem.tracing.ops.elementwise import drawn, made_of_constants
from meristem.tracing.ops.moving import view
from meristem.tracing.ops.op import Op
from meristem.tracing.ops.reducing import batch_norm, group_norm, layer_norm
from meristem.tracing.ops.table import OPS, UNLISTED
from meristem.tracing.own_ops import OwnOps, own_ops
from meristem.tracing.unit_labels import KnownUnitLabels

_DRAWS = (made_of_constants, drawn)  # what makes random numbers, among other things


@dataclass(frozen=True)
class Reference:
    """Outputs of the masked full-size model (those that count, see `trace`), and its full-size parameters.

    After ``backward`` these have gradients, but for those that are frozen.
    """

    outputs: list[Tensor]
    parameters: dict[str, Tensor]

    def backward(self, cotangents: Sequence[Tensor]) -> None:
        pairs = [(out, grad) for out, grad in zip(self.outputs, cotangents, strict=True) if out.requires_grad]
        torch.autograd.backward([out for out, _ in pairs], [grad for _, grad in pairs])


def masked_reference(
    model: nn.Module,
    space: Space,
    masks: Mapping[str, BoolArray],
    inputs: tuple[Any, ...],
    scales: Mapping[tuple[str, int], Tensor] | None = None,
    rules: Sequence[Rule] = (),
) -> Reference:
    """Run the full-size ``model`` with only the units in ``masks`` alive, in its present mode.

    ``scales`` maps (tensor name, dim) to gates for all positions of that dimension, live or not. ``rules`` are those
    that the model was traced with.
    """
    parameters = {name: tensor.detach().clone() for name, tensor in named_tensors(model)}
    for name, parameter in model.named_parameters():
        parameters[name].requires_grad_(parameter.requires_grad)
    full = copy_with(model, lambda name, _: parameters[name].detach().clone(), meta=False).train(model.training)
    for group, block in space.blocks.items():
        if not masks[group][0]:
            leave_out(full, block.path, block.way)
    own = own_ops(rules)
    replay = _Replay(full, space, masks, parameters, scales or {}, own)
    run = replay.run = LabelledRun(full, replay.observations, own, meta=None, listener=replay.record)
    with followed(replay.apply):
        outputs = run.execute(call_of(full, inputs, {}, space.carried, space.outputs))
    for step in replay.steps:  # afterwards, because inside the run operations come without their gradients
        with torch.set_grad_enabled(step.differentiated):
            replay.step(step)
    return Reference([replay.value(out) for out in outputs], parameters)


class _Replay:
    """Executes each step again, with gradients, on masked full-size tensors."""

    run: LabelledRun

    def __init__(
        self,
        model: nn.Module,
        space: Space,
        masks: Mapping[str, BoolArray],
        parameters: Mapping[str, Tensor],
        scales: Mapping[tuple[str, int], Tensor],
        own: OwnOps,
    ) -> None:
        self._first, self._space, offset = {}, space, 1
        for name, group in space.groups.items():
            self._first[name] = offset
            offset += group.units
        self._alive = np.ones(offset, dtype=np.bool_)
        for name, mask in masks.items():
            self._alive[self._first[name] : self._first[name] + len(mask)] = mask
        self._labels = KnownUnitLabels(np.zeros(offset, dtype=np.bool_), lenient=False)
        self.observations = Observations(self._labels)
        for name in space.tensors:
            for dim, axis in enumerate(space.axes(name)):
                ids = self._labels.of_positions(self._leaves(axis), np.ones(axis.size, dtype=np.bool_))
                self.observations.owned[name, dim] = Dim(axis.size, ids, constant=axis.size == 1, origin=(name, dim))
        for state in space.states:
            self.observations.states[state.path] = [
                Dim(axis.size, self._labels.of_positions(self._leaves(axis), np.ones(axis.size, dtype=np.bool_)))
                for axis in state.axes
            ]
        self._names = {id(tensor): name for name, tensor in named_tensors(model)}
        self._parameters, self._scales, self._own = parameters, scales, own
        self._values: dict[int, tuple[Tensor, Tensor]] = {}
        self._drawn: dict[int, Tensor] = {}
        self._numbers = {(each.where, each.number): each.factor(masks) for each in space.numbers}
        self._factors: dict[tuple[int, float], float] = {}  # by step and number of the full model
        self.steps: list[ExecutedOp | AppliedFunction] = []

    def _leaves(self, axis: Axis) -> list[IntArray]:
        return [  # without blocks: an absent one is not there at all
            np.where(part.units >= 0, part.units + self._first[part.group], 0) for part in self._space.unit_parts(axis)
        ]

    def _live(self, dim: Dim) -> BoolArray | None:
        """Which positions of a dimension are alive, or None if all are."""
        if dim.ids is None:
            return None
        numbers, inverse = np.unique(dim.ids, return_inverse=True)
        alive = [bool(n <= 0 or self._alive[self._labels.units(np.array([n]))].all()) for n in numbers.tolist()]
        live = np.array(alive, dtype=np.bool_)[inverse.reshape(-1)]
        return None if live.all() else live

    def value(self, tensor: Tensor) -> Tensor:
        if id(tensor) in self._values:
            return self._values[id(tensor)][1]
        name = self._names.get(id(tensor))
        return self._masked(tensor if name is None else self._parameters[name], self.run.dims(tensor))

    def _masked(self, value: Tensor, dims: Sequence[Dim]) -> Tensor:
        for at, dim in enumerate(dims):
            live = self._live(dim)
            if live is not None:
                shape = [-1 if other == at else 1 for other in range(value.dim())]
                value = torch.where(torch.from_numpy(live).view(shape), value, torch.zeros((), dtype=value.dtype))
        return value

    def record(self, step: ExecutedOp) -> None:
        """Note a step for later, with random numbers as they are: drawn again they would be others."""
        self.steps.append(step)
        for number in all_numbers({"args": step.arguments, **step.kwargs}):
            factor = self._factor(step.where, number)
            if factor is not None:
                self._factors[id(step), number] = factor
        name = step.func.overloadpacket.__name__
        if torch.Tag.nondeterministic_seeded in step.func.tags and OPS.get(name, UNLISTED).rule in _DRAWS:
            self._drawn[id(step)] = step.outs.clone()

    def apply(self, apply: Apply, arguments: Sequence[Any]) -> Any:
        """Note a function with a backward pass of its own as one step, instead of what it consists of."""
        first = len(self.steps)
        outs = apply(*arguments)
        self.steps[first:] = [AppliedFunction(apply, arguments, outs, torch.is_grad_enabled())]
        return outs

    def step(self, step: ExecutedOp | AppliedFunction) -> None:
        if isinstance(step, ExecutedOp):
            self._step(step)
            return
        arguments = tree_map(self._argument, step.arguments)
        live = [self._compact(value, original) for value, original in zip(arguments, step.arguments, strict=True)]
        self._keep(step.outs, self._spread_all(step.apply(*live), step.outs), masked=False)

    def _step(self, step: ExecutedOp) -> None:
        outs: Any
        args, kwargs = tree_map(self._argument, (step.arguments, step.kwargs))
        name = step.func.overloadpacket.__name__
        if name == "add_" and self._is_buffer(step.arguments[0]):
            return  # a counter of the model's own
        in_place = bool(step.arguments) and step.outs is step.arguments[0]
        reshaped = torch.Tag.inplace_view in step.func.tags  # ``transpose_`` and the like write nothing
        written_to = args[0] if in_place and not reshaped else None
        if written_to is not None:  # on a copy, because masking it would change what the operation keeps for gradients
            args = [written_to.clone(), *args[1:]]
        own = self._own.get(f"{step.func.namespace}::{name}", name)
        op = own if isinstance(own, Op) else OPS.get(own, UNLISTED)
        args, kwargs = tree_map(lambda value: self._sized(step, value), (args, kwargs))
        if op.rule is attention:  # the fused kernels do not give gradients to every argument
            attended = _attention(step.func, args, kwargs, self._size_of_heads(step))
            outs = attended if isinstance(step.outs, Tensor) else (attended, *step.outs[1:])
        elif id(step) in self._drawn:
            outs = self._drawn[id(step)]
        elif op.rule is view:  # masking may have changed the memory format
            outs = args[0].reshape(step.outs.shape)
        elif op.zeros_count:
            outs = self._on_live_positions(step, op, self._scaled(step, args), kwargs)
        elif op.rule is batch_norm:  # running statistics are updated in place: work on copies
            pairs = zip(self._scaled(step, args), step.arguments, strict=True)
            outs = step.func(*[a.detach().clone() if self._is_buffer(b) else a for a, b in pairs], **kwargs)
        elif "out" in kwargs:  # what is written to is not differentiated
            with torch.no_grad():
                outs = step.func(*args, **kwargs)
        else:
            outs = step.func(*self._scaled(step, args), **kwargs)
        if written_to is not None:  # views of it, and what it is a view of, must see what is written
            assert isinstance(outs, Tensor)
            outs = written_to.copy_(self._masked(outs, self.run.dims(step.outs)))
        self._keep(step.outs, outs, masked=in_place or step.func.is_view)
        for written in written_tensors(step.func, signature(step.func).by_name(step.arguments, step.kwargs)):
            self._write_through(written)

    def _is_buffer(self, original: Any) -> bool:
        return isinstance(original, Tensor) and id(original) in self._names and not isinstance(original, nn.Parameter)

    def _factor(self, where: str, number: float) -> float | None:
        """How many times this number it is in a network of the live units, if it follows a size there."""
        operation, _, place = where.partition(" in ")
        if (
            operation.startswith("_scaled_dot_product") and number > 0
        ):  # on meta, queries and keys are scaled by the root
            root = self._numbers.get((f"mul in {place}", math.sqrt(number)))
            if root is not None:
                return root * root
        return self._numbers.get((where, number))

    def _sized(self, step: ExecutedOp, value: Any) -> Any:
        """A plain number that follows a size is that of the live units."""
        key = (id(step), value) if isinstance(value, (int, float)) else None
        return value * self._factors[key] if key in self._factors else value

    def _size_of_heads(self, step: ExecutedOp) -> int:
        query = step.arguments[0]
        live = self._live(self.run.dims(query)[-1])
        return int(query.shape[-1] if live is None else live.sum())

    def _argument(self, value: Any) -> Any:
        return self.value(value) if isinstance(value, Tensor) else value

    def _scaled(self, step: ExecutedOp, args: Sequence[Any]) -> list[Any]:
        """Gates: scale a weight of the model along the dimension that reads units, or stands for what does."""
        result = list(args)
        for at, original in enumerate(step.arguments):
            name = self._names.get(id(original)) if isinstance(original, Tensor) else None
            for (tensor, dim), factor in self._scales.items():
                if tensor == name:
                    shape = [-1 if other == dim else 1 for other in range(original.dim())]
                    result[at] = result[at] * factor.view(shape)
        return result

    def _keep(self, original_outs: Any, outs: Any, *, masked: bool) -> None:
        """Remember results; ``masked`` ones stay the same tensors, because they may share their memory."""
        originals = [out for out in _flat(original_outs) if isinstance(out, Tensor)]
        for original, replayed in zip(originals, [out for out in _flat(outs) if isinstance(out, Tensor)], strict=True):
            mask = replayed.is_floating_point() and not masked
            value = self._masked(replayed, self.run.dims(original)) if mask else replayed
            self._values[id(original)] = (original, value)

    def _write_through(self, written: Tensor) -> None:
        """What an operation in place has made of one tensor is in those that share its memory, too."""
        storage = written.untyped_storage()
        sharing = [
            (id(tensor), tensor, value)
            for tensor, value in self._values.values()
            if tensor is not written and tensor.untyped_storage()._cdata == storage._cdata
        ]
        if id(written) not in self._values or not sharing:
            return
        memory = torch.arange(storage.nbytes() // written.element_size())
        new, to = self._values[id(written)][1], _places(written, memory)
        for key, tensor, value in sharing:
            at = _places(tensor, memory)
            blank = value.new_zeros(len(memory))
            whole = blank.index_put((at,), value).index_put((to,), new.to(value.dtype))
            if torch.is_grad_enabled():
                self._values[key] = (tensor, whole[at])
            else:  # as torch does it: other numbers, the same way back
                value.copy_(whole[at])

    def _on_live_positions(self, step: ExecutedOp, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation on live positions only, then put its results back at full size."""
        normed = next(a for a in step.arguments if isinstance(a, Tensor))
        compact = [self._compact(a, b) for a, b in zip(args, step.arguments, strict=True)]
        if op.rule is layer_norm:
            compact[1] = list(compact[0].shape[-len(args[1]) :])
        if op.rule is group_norm:
            live = self._live(self.run.dims(normed)[1])
            rows = (np.ones(normed.shape[1], dtype=np.bool_) if live is None else live).reshape(args[6], -1).any(axis=1)
            compact[4], compact[6] = compact[0].shape[1], int(rows.sum())
        outs = step.func(*compact, **kwargs)
        return self._spread_all(outs, step.outs)

    def _compact(self, value: Any, original: Any) -> Any:
        if not isinstance(original, Tensor):
            return value
        for at, dim in enumerate(self.run.dims(original)):
            live = self._live(dim)
            if live is not None:
                value = value.index_select(at, torch.from_numpy(np.flatnonzero(live)))
        return value

    def _spread_all(self, outs: Any, originals: Any) -> Any:
        """Results at full size again, with zeros where nothing is alive."""
        flat = iter([self._spread(out, original) for out, original in zip(_flat(outs), _flat(originals), strict=True)])
        return tree_map(lambda _: next(flat), outs)

    def _spread(self, value: Any, original: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.shape == original.shape:
            return value
        for at, dim in enumerate(self.run.dims(original)):
            live = self._live(dim)
            if live is not None:
                shape = list(value.shape)
                shape[at] = dim.size
                value = value.new_zeros(shape).index_copy(at, torch.from_numpy(np.flatnonzero(live)), value)
        return value


def _attention(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], size: int) -> Tensor:
    names = [argument.name for argument in func._schema.arguments]
    by_name = dict(zip(names, args, strict=False)) | dict(kwargs)
    mask = by_name.get("attn_mask", by_name.get("attn_bias"))
    causal = bool(by_name.get("is_causal", False))
    query, key, value = by_name["query"], by_name["key"], by_name["value"]
    grouped = query.dim() == 4 and query.shape[1] != key.shape[1]
    scale = by_name.get("scale")
    scale = 1 / math.sqrt(size) if scale is None else scale
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def _places(tensor: Tensor, memory: Tensor) -> Tensor:
    """Where in its memory each element of a tensor lies."""
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]
