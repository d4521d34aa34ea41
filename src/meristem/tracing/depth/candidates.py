"""Depth: which blocks of a model may be absent, so that their input passes through.

A stage is an ``nn.Sequential`` or ``nn.ModuleList`` whose children map a tensor to one of the same shape. What goes
into such a block and what comes out of it is the same stream, so their units are tied: in a residual block they already
are, in a plain one this makes it possible to leave the block out at any width.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np
from torch import nn

from meristem.errors import TraceError
from meristem.space.absent_blocks import DROPPED, REPLACED, can_drop
from meristem.tracing.labels import Dim
from meristem.tracing.observations import Record
from meristem.tracing.resolve import resolve

Depth = bool | str | Sequence[str]  # all blocks that are found, or patterns of those that may be absent; !x: none of x


@dataclass(frozen=True)
class Candidate:
    """A block that may perhaps be absent, and the stage it belongs to."""

    path: str
    stage: str
    way: str
    plain: bool = False


def watched(model: nn.Module, depth: Depth) -> set[str]:
    """The modules whose inputs and outputs must be looked at while the model runs."""
    if not depth:  # nor is there anything in an empty list of patterns
        return set()
    _check_patterns(model, depth)
    return {path for path, _ in _children_of_stages(model)} | {
        path for path, _ in model.named_modules() if path and _wanted(path, depth) is True
    }


def candidates(model: nn.Module, record: Record, depth: Depth) -> tuple[list[Candidate], list[str]]:
    """The blocks that keep their shape, in order, and a note for each stage of what may never be absent and why."""
    found, notes = list[Candidate](), list[str]()
    kept = {path: reason(model, path, record) for path in record.passages}
    reasons = {path: why for path, why in kept.items() if why is not None}
    for stage, children in _stages(model, kept, depth).items():
        fixed: dict[str, list[str]] = {}
        free: list[str] = []
        for path in children:
            why = kept.get(path, "it is never called") if _wanted(path, depth) is not False else "you excluded it"
            if why is None and not free and not fixed and not _has_company(model, stage, path, children):
                why = "it is the first of its stage, and a stage is never empty"
            if why is None:
                free.append(path)
            else:
                fixed.setdefault(why, []).append(path)
                reasons[path] = why
        found += [Candidate(path, stage, _way(record, path)) for path in free]
        notes += [_note(paths, why) for why, paths in fixed.items()]
    return found, notes + _unfulfilled(model, depth, found, reasons)


def _has_company(model: nn.Module, stage: str, path: str, blocks: Sequence[str]) -> bool:
    """Whether a single layer, which was named, has other layers beside it that stay."""
    layer = next(model.get_submodule(path).children(), None) is None
    others = [child for name, child in children_of(model, stage) if name not in blocks]
    return layer and any(next(other.parameters(), None) is not None for other in others)


def _unfulfilled(model: nn.Module, depth: Depth, found: Sequence[Candidate], reasons: Mapping[str, str]) -> list[str]:
    """Notes on patterns that name blocks, none of which may be absent."""
    notes = []
    for pattern in _patterns(depth):
        if pattern.startswith("!") or any(fnmatch.fnmatchcase(each.path, pattern) for each in found):
            continue
        named = [path for path, _ in model.named_modules() if path and fnmatch.fnmatchcase(path, pattern)]
        for path in [path for path in named if block_of(path, dict.fromkeys(named, "")) is None]:
            notes.append(_note([path], reasons.get(path, "it is not one of the blocks of a stage")))
    return notes


def _note(paths: Sequence[str], why: str) -> str:
    return f"{', '.join(paths)} can never be absent: {why}"


def _way(record: Record, path: str) -> str:
    alone = all(passage is not None and passage.alone for passage in record.passages[path])
    return REPLACED if alone else DROPPED


def reason(model: nn.Module, path: str, record: Record) -> str | None:
    """Why a module cannot be left out, or None if nothing is known against it."""
    passages, module = record.passages[path], model.get_submodule(path)
    if any(passage is None for passage in passages):
        return "it does not map one tensor to one of the same shape"
    if len({passage.run for passage in passages if passage is not None}) < len(passages):
        return "it is called more than once"
    if any(passage is not None and passage.spoiled for passage in passages):
        return "it overwrites what goes into it (an operation in place), which could not pass by then"
    if _way(record, path) == DROPPED and not can_drop(model, path):
        return "it is called with more than one tensor, or returns more"
    if path in record.added:
        return "what comes out meets what goes in outside of it (a sum, say, would be doubled); put that inside"
    if any(not parameter.dim() for parameter in module.parameters()):
        return "it holds a parameter without dimensions"
    inside = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    within = set(map(id, module.modules()))
    for other in model.modules():
        if id(other) not in within:
            held = (*other.parameters(recurse=False), *other.buffers(recurse=False))
            if any(id(tensor) in inside for tensor in held):
                return "it shares weights with another module"
    for passage in passages:
        assert passage is not None
        for before, after in zip(passage.before, passage.after, strict=True):
            if before.labelled != after.labelled:
                return "what goes in cannot change its width, or what comes out cannot"
    return None


def with_plain(record: Record, found: Sequence[Candidate]) -> list[Candidate]:
    """Mark those without a shortcut: before `tie_streams`, what goes in and what comes out are different units."""
    root = resolve(record.labels).root if found else np.zeros(0, dtype=np.int64)

    def apart(before: Dim, after: Dim) -> bool:
        given, made = before.vector(), after.vector()
        free = (given > 0) & (made > 0)  # what is fixed or constant says nothing
        return bool((root[given[free]] != root[made[free]]).any())

    return [replace(each, plain=any(apart(*dims) for dims in _streams(record, each))) for each in found]


def _streams(record: Record, candidate: Candidate) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions that go into a block, each with what comes out there."""
    for passage in record.passages[candidate.path]:
        assert passage is not None
        yield from zip(passage.before, passage.after, strict=True)


def tie_streams(record: Record, found: Sequence[Candidate]) -> None:
    """What goes into a block is what comes out of it when it is absent."""
    for candidate in found:
        for before, after in _streams(record, candidate):
            record.labels.unite(before, after, f"{candidate.path} may be absent")


# --- finding them ---


def _stages(model: nn.Module, kept: dict[str, str | None], depth: Depth) -> dict[str, list[str]]:
    """Stages and the paths of their children, from the outermost in; nothing is searched inside a stage's blocks."""
    found: dict[str, list[str]] = {}

    def visit(path: str, module: nn.Module) -> None:
        children = [(child, inner) for child, inner in children_of(model, path) if is_block(model, child, depth)]
        blocks = [child for child, _ in children if kept.get(child, "") is None]
        named = [child for child in blocks if _wanted(child, depth) is True]
        holds = isinstance(module, (nn.Sequential, nn.ModuleList))
        if (holds and any(not _is_stage(model, child, kept, depth) for child in blocks)) or named:
            found[path] = [child for child, _ in children]
            return
        for child, inner in children_of(model, path):
            visit(child, inner)

    visit("", model)
    return found


def _is_stage(model: nn.Module, path: str, kept: dict[str, str | None], depth: Depth) -> bool:
    """A plain sequence that itself holds blocks."""
    module = model.get_submodule(path)
    return type(module) is nn.Sequential and any(
        kept.get(child, "") is None and is_block(model, child, depth) for child, _ in children_of(model, path)
    )


def is_block(model: nn.Module, path: str, depth: Depth = True) -> bool:
    """More than a single layer, unless it is named, and with something to learn."""
    module = model.get_submodule(path)
    composed = next(module.children(), None) is not None or _wanted(path, depth) is True
    return composed and next(module.parameters(), None) is not None


def children_of(model: nn.Module, path: str) -> list[tuple[str, nn.Module]]:
    prefix = f"{path}." if path else ""
    return [(f"{prefix}{name}", child) for name, child in model.get_submodule(path).named_children()]


def _children_of_stages(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, module in model.named_modules():
        if isinstance(module, (nn.Sequential, nn.ModuleList)):
            yield from children_of(model, path)


def block_of(tensor: str, blocks: dict[str, str]) -> str | None:
    """The block that a tensor, or an operation of a module, lies in."""
    parts = tensor.split(".")
    for end in range(len(parts) - 1, 0, -1):
        path = ".".join(parts[:end])
        if path in blocks:
            return path
    return None


# --- patterns ---


def _patterns(depth: Depth) -> list[str]:
    return [] if isinstance(depth, bool) else [depth] if isinstance(depth, str) else list(depth)


def _wanted(path: str, depth: Depth) -> bool | None:
    """True if a pattern names the block, False if one excludes it or others are named, None if it is to be found."""
    patterns = _patterns(depth)
    if any(fnmatch.fnmatchcase(path, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    named = [pattern for pattern in patterns if not pattern.startswith("!")]
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in named) if named else None


def _check_patterns(model: nn.Module, depth: Depth) -> None:
    paths = [path for path, _ in model.named_modules() if path]
    for pattern in _patterns(depth):
        if not any(fnmatch.fnmatchcase(path, pattern.removeprefix("!")) for path in paths):
            near = get_close_matches(pattern, paths, 3, 0.4) or paths[:3]
            raise TraceError(f"depth={pattern!r} matches no module; the nearest are {', '.join(near)}")
