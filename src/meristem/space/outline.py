"""The space in outline: what a picture or a reader without the model needs, as plain data that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meristem.space.space import Role, Site, Space, Tensor

FORMAT = "meristem-space-1"


def outline(space: Space) -> dict[str, Any]:
    """Groups, layers, stages and pinned parts of a space.

    A layer is a module with a weight of at least two dimensions. Its ``out`` and ``in`` are closed forms of the widths
    (:func:`width`), ``stage`` numbers the runs of layers that work at one resolution.
    """
    small, full = space.costs if space.costs is not None else (None, None)
    return {
        "format": FORMAT,
        "groups": [_group(space, name) for name in space.groups],
        "layers": _layers(space),
        "stages": [
            {"name": stage.name, "fixed": stage.fixed, "blocks": [[block.group, block.path] for block in stage.blocks]}
            for stage in space.stages
        ],
        "pinned": [{"name": each.name, "units": each.units, "reason": each.reason} for each in space.pinned],
        "notes": list(space.notes),
        "params": [small.params, full.params] if small and full else None,
        "macs": [small.macs, full.macs] if small and full else None,
    }


def width(form: Mapping[str, Any], widths: Mapping[str, float]) -> float:
    """How many units of a layer are live.

    >>> width({"size": 20, "terms": [[1.0, ["a"]], [4.0, []]]}, {"a": 3})
    7.0
    """
    return float(sum(factor * math.prod(widths[group] for group in groups) for factor, groups in form["terms"]))


def _group(space: Space, name: str) -> dict[str, Any]:
    group = space.groups[name]
    makers, along, readers = space.coupled(name)
    return {
        "name": name,
        "units": group.units,
        "kind": group.kind,
        "params_frac": space.group_params_frac.get(name, 0.0),
        "makers": makers,
        "along": along,
        "readers": readers,
    }


def _layers(space: Space) -> list[dict[str, Any]]:
    sites: dict[str, list[Site]] = {}
    for site in space.sites:
        sites.setdefault(site.tensor, []).append(site)
    modules: dict[str, list[Tensor]] = {}
    for tensor in space.tensors.values():
        if tensor.is_parameter:
            modules.setdefault(tensor.name.rpartition(".")[0] or tensor.name, []).append(tensor)
    layers: list[dict[str, Any]] = []
    for module, tensors in modules.items():
        weight = max(tensors, key=lambda tensor: len(tensor.shape))  # the first of those
        if len(weight.shape) > 1:
            made, read = _dims(sites.get(weight.name, ()))
            layers.append(
                {
                    "module": module,
                    "shape": list(weight.shape),
                    "params": sum(math.prod(tensor.shape) for tensor in tensors),
                    "out": _form(space, weight, made),
                    "in": _form(space, weight, read),
                }
            )
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


def _dims(sites: Iterable[Site]) -> tuple[int, int]:
    """The dimensions in which a weight makes and reads units; where nothing is known, as in a convolution."""
    made = next((site.dim for site in sites if Role.OUT in site.roles), None)
    read = next((site.dim for site in sites if Role.IN in site.roles and site.dim != made), None)
    if made is None:
        made = 1 if read == 0 else 0
    if read is None:
        read = 1 if made == 0 else 0
    return made, read


def _form(space: Space, weight: Tensor, dim: int) -> dict[str, Any]:
    """A dimension as a closed form of the widths."""
    gates = _gates(space, weight) if dim == 0 else 1
    terms = [[coefficient / gates, list(groups)] for coefficient, groups in space.axes(weight.name)[dim].terms]
    return {"size": round(width({"terms": terms}, space.full)), "terms": terms}


def _gates(space: Space, weight: Tensor) -> int:
    """How many rows of a recurrent layer's weight belong to one cell: people speak of its cells, not of their gates."""
    module, _, name = weight.name.rpartition(".")
    if not name.startswith("weight_ih"):
        return 1
    beside = (space.tensors.get(f"{module}.{name.replace('_ih', part)}") for part in ("_hr", "_hh"))
    cells = next((tensor.shape[1] for tensor in beside if tensor is not None), weight.shape[0])
    return weight.shape[0] // cells
