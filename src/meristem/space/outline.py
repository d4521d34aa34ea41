"""The space in outline: what a picture or a reader without the model needs, as plain data that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from meristem.space.axis import Axis
from meristem.space.paths import layer_path, split_path
from meristem.space.space import Role, Site, Space, TensorSpec

FORMAT = "meristem-space-1"


def outline(space: Space, model: nn.Module | None = None) -> dict[str, Any]:
    """Groups, layers, stages and pinned parts of a space.

    A layer is a module with a weight of at least two dimensions. Its ``out`` and ``in`` are closed forms of the widths
    (:func:`width`), ``stage`` numbers the runs of layers that work at one resolution. With the full-size ``model``
    the class of every layer is there as well.
    """
    small, full = space.costs if space.costs is not None else (None, None)
    shares = space.group_params_frac
    return {
        "format": FORMAT,
        "groups": [_group(space, name, shares[name]) for name in space.groups],
        "layers": _layers(space, model),
        "stages": [
            {"name": stage.name, "fixed": stage.fixed, "blocks": [[block.group, block.path] for block in stage.blocks]}
            for stage in space.stages
        ],
        "pinned": [{"name": each.name, "units": each.units, "reason": each.reason} for each in space.pinned],
        "notes": list(space.notes),
        "params": [small.params, full.params] if small and full else None,
        "macs": [small.macs, full.macs] if small and full else None,
        "free_params_frac": space.free_params_frac,
    }


def width(form: Mapping[str, Any], widths: Mapping[str, float]) -> float:
    """How many units of a layer are live.

    >>> width({"size": 20, "terms": [[1.0, ["a"]], [4.0, []]]}, {"a": 3})
    7.0
    """
    return float(sum(factor * math.prod(widths[group] for group in groups) for factor, groups in form["terms"]))


def _group(space: Space, name: str, share: float) -> dict[str, Any]:
    group = space.groups[name]
    makers, along, readers = space.coupled(name)
    return {
        "name": name,
        "units": group.units,
        "kind": group.kind,
        "mixes_units": group.mixes_units,
        "params_frac": share,
        "makers": makers,
        "along": along,
        "readers": readers,
    }


def _layers(space: Space, model: nn.Module | None) -> list[dict[str, Any]]:
    sites: dict[str, list[Site]] = {}
    for site in space.sites:
        sites.setdefault(site.tensor, []).append(site)
    modules: dict[str, list[TensorSpec]] = {}
    for tensor in space.tensors.values():
        if tensor.is_parameter:
            modules.setdefault(layer_path(tensor.name), []).append(tensor)
    channels = _channels(space, model)
    layers: list[dict[str, Any]] = []
    for module, tensors in modules.items():
        weight = max(tensors, key=lambda tensor: len(tensor.shape))  # the first of those
        if len(weight.shape) > 1:
            out_dim, in_dim = _dims(weight, sites.get(weight.name, ()))
            layers.append(
                {
                    "module": module,
                    "shape": list(weight.shape),
                    "params": sum(math.prod(tensor.shape) for tensor in tensors),
                    "out": _form(space, weight, out_dim, channels.get((module, "out_channels"))),
                    "in": _form(space, weight, in_dim, channels.get((module, "in_channels"))),
                }
            )
            if model is not None:
                bare = module in space.tensors
                layers[-1]["type"] = "Parameter" if bare else type(model.get_submodule(module)).__name__
    for layer, stage in zip(layers, _stages(space, layers), strict=True):
        layer["stage"] = stage
    return layers


def _stages(space: Space, layers: Sequence[Mapping[str, Any]]) -> list[int]:
    """Runs of convolutions at one resolution, with what lies between; where there is one resolution, the blocks."""
    macs: dict[str, float] = {}
    for term in space.terms:
        macs[term.module] = macs.get(term.module, 0.0) + term.factor * math.prod(axis.size for axis in term.axes)
    keys: list[object] = []
    for layer in layers:
        positions = macs.get(layer["module"], 0.0) / math.prod(layer["shape"])
        keys.append(positions if len(layer["shape"]) > 2 else (keys[-1] if keys else None))
    numbers = _numbered(keys)
    return numbers if numbers and numbers[-1] else _numbered([_block(layer["module"]) for layer in layers])


def _numbered(keys: Sequence[object]) -> list[int]:
    """
    >>> _numbered(["a", "a", "b", "a"])
    [0, 0, 1, 2]
    """
    numbers: list[int] = []
    for index, key in enumerate(keys):
        numbers.append(numbers[-1] + (key != keys[index - 1]) if numbers else 0)
    return numbers


def _block(module: str) -> str:
    """
    >>> _block("encoder.layers.3.linear1"), _block("head")
    ('encoder.layers.3', 'head')
    """
    parts = module.split(".")
    number = next((index for index, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[: number + 1])


def _dims(weight: TensorSpec, sites: Iterable[Site]) -> tuple[int, int]:
    """The dimensions in which a weight makes and reads units; where no site says so, as in a convolution."""
    out_dim = next((site.dim for site in sites if Role.OUT in site.roles), None)
    in_dim = next((site.dim for site in sites if Role.IN in site.roles and site.dim != out_dim), None)
    if out_dim is None and in_dim is None:  # a depthwise filter, a table of positions: units only pass by
        out_dim = next((site.dim for site in sites), 0)
    if out_dim is None:
        out_dim = 1 if in_dim == 0 else 0
    if in_dim is None:
        in_dim = 1 - out_dim if out_dim < 2 else max(range(out_dim), key=lambda dim: weight.shape[dim])
    return out_dim, in_dim


def _channels(space: Space, model: nn.Module | None) -> dict[tuple[str, str], Axis]:
    """All channels of convolutions: the weight of a grouped one has only those of one group in one dimension."""
    channels: dict[tuple[str, str], Axis] = {}
    for path, module in model.named_modules() if model is not None else ():
        for name in ("in_channels", "out_channels"):
            size = getattr(module, name, None)
            if isinstance(size, int):
                channels[path, name] = Axis(size)
    return {**channels, **{(each.module, each.name): each.axis for each in space.attributes}}


def _form(space: Space, weight: TensorSpec, dim: int, channels: Axis | None) -> dict[str, Any]:
    """A dimension as a closed form of the widths."""
    axis, gates = space.axes(weight.name)[dim], _gates(space, weight) if dim == 0 else 1
    if channels is not None and channels.size > axis.size and channels.size % axis.size == 0:
        axis = channels
    terms = [[coefficient / gates, list(groups)] for coefficient, groups in axis.terms]
    return {"size": round(width({"terms": terms}, space.full)), "terms": terms}


def _gates(space: Space, weight: TensorSpec) -> int:
    """How many rows of a recurrent layer's weight belong to one cell: people speak of its cells, not of their gates."""
    module, name = split_path(weight.name)
    if not name.startswith("weight_ih"):
        return 1
    beside = (space.tensors.get(f"{module}.{name.replace('_ih', part)}") for part in ("_hr", "_hh"))
    cells = next((tensor.shape[1] for tensor in beside if tensor is not None), weight.shape[0])
    return weight.shape[0] // cells
