"""Stages: sequences and lists of modules whose children are blocks that follow one another."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from meristem.space.paths import ancestors
from meristem.tracing.depth.patterns import Depth, wanted

Reasons = Mapping[str, str | None]  # why a module that was called cannot be absent; None: nothing speaks against it


def watched_modules(model: nn.Module, depth: Depth) -> set[str]:
    """The modules whose inputs and outputs must be looked at while the model runs."""
    if not depth:  # nor is there anything in an empty list of patterns
        return set()
    in_stages = {
        path
        for stage, module in model.named_modules()
        if isinstance(module, (nn.Sequential, nn.ModuleList))
        for path in children_of(model, stage)
    }
    return in_stages | {path for path, _ in model.named_modules() if path and wanted(path, depth) is True}


def stages(model: nn.Module, reasons: Reasons, depth: Depth) -> dict[str, list[str]]:
    """Stages and the paths of their blocks, from the outermost in; nothing is searched inside a stage's blocks."""
    blocks_by_stage: dict[str, list[str]] = {}

    def visit(path: str) -> None:
        blocks = [child for child in children_of(model, path) if is_block(model, child, depth)]
        free = [child for child in blocks if reasons.get(child, "") is None]
        named = any(wanted(child, depth) is True for child in free)
        is_list = isinstance(model.get_submodule(path), (nn.Sequential, nn.ModuleList))
        if named or (is_list and any(not _is_stage(model, child, reasons, depth) for child in free)):
            blocks_by_stage[path] = blocks
            return
        for child in children_of(model, path):
            visit(child)

    visit("")
    return blocks_by_stage


def _is_stage(model: nn.Module, path: str, reasons: Reasons, depth: Depth) -> bool:
    """Whether it is a plain sequence that itself holds blocks."""
    return type(model.get_submodule(path)) is nn.Sequential and any(
        reasons.get(child, "") is None and is_block(model, child, depth) for child in children_of(model, path)
    )


def is_block(model: nn.Module, path: str, depth: Depth = True) -> bool:
    """Whether it is more than a single layer, unless it is named, and has something to learn."""
    module = model.get_submodule(path)
    composed = next(module.children(), None) is not None or wanted(path, depth) is True
    return composed and next(module.parameters(), None) is not None


def children_of(model: nn.Module, path: str) -> list[str]:
    """The paths of the children of a module."""
    prefix = f"{path}." if path else ""
    return [f"{prefix}{name}" for name, _ in model.get_submodule(path).named_children()]


def block_around(path: str, blocks: Collection[str]) -> str | None:
    """The innermost of the blocks that a tensor or module lies in.

    >>> block_around("stage.1.conv.weight", ["stage.1", "stage.2"]), block_around("stage.1", ["stage.1"])
    ('stage.1', None)
    """
    return next((module for module in reversed(ancestors(path)) if module in blocks), None)
