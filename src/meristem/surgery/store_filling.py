"""Fill the store from the full-size model; of blocks that are built alike and start absent, one stands for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from meristem.space.paths import is_inside
from meristem.space.space import Space
from meristem.surgery.model_tensors import ModelTensors
from meristem.surgery.module_tree import ModuleTree
from meristem.surgery.store import Store


def fill_store(
    store: Store, tensors: ModelTensors, tree: ModuleTree, space: Space, start: Mapping[str, Iterable[int]]
) -> None:
    """Let the store adopt every tensor that can be resized; ``start`` are the units that will be live."""
    models = _models_of_absent_tensors(tensors, tree, space, start)
    for name in tensors.resizable:
        if name not in models:
            store.adopt(name, tensors.read(name))
    for name, model in models.items():
        store.adopt_like(name, model)


def _models_of_absent_tensors(
    tensors: ModelTensors, tree: ModuleTree, space: Space, start: Mapping[str, Iterable[int]]
) -> dict[str, str]:
    """For each trained tensor of a block that starts absent: the same tensor of the first block that is built alike.

    Buffers, a causal mask say, and frozen parameters mean something as they are: they are no part of this.
    """
    first_built: dict[tuple[Any, ...], str] = {}
    models: dict[str, str] = {}
    for group, block in space.blocks.items():
        inside = [name for name in tensors.resizable if is_inside(name, block.path)]
        shapes = tuple((name.removeprefix(block.path), space.tensors[name].shape) for name in inside)
        first = first_built.setdefault((type(tree.module(block.path)), shapes), block.path)
        if first != block.path and group in start and not list(start[group]):
            trained = [name for name in inside if tensors.read(name).requires_grad]
            models.update({name: first + name.removeprefix(block.path) for name in trained})
    return models
