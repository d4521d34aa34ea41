"""Depth: which blocks of a model may be absent, so that their input passes through.

A stage is an ``nn.Sequential`` or ``nn.ModuleList`` whose children map a tensor to one of the same shape. What goes
into such a block and what comes out of it is the same stream, so their units are tied: in a residual block they already
are, in a plain one this makes it possible to leave the block out at any width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from meristem.space.absent_blocks import DROPPED, REPLACED, can_drop
from meristem.tracing.depth.patterns import Depth, depth_patterns, wanted
from meristem.tracing.depth.stages import block_around, children_of, stages
from meristem.tracing.labels import Dim
from meristem.tracing.observations import Observations
from meristem.tracing.path_patterns import matches
from meristem.tracing.resolve import resolve

Holders = Mapping[int, set[int]]  # by the id of a tensor: the ids of the modules that hold it


@dataclass(frozen=True)
class BlockCandidate:
    """A block that may perhaps be absent: its stage, how it is left out, and whether it is ``plain``, no shortcut."""

    path: str
    stage: str
    way: str
    plain: bool = False


def block_candidates(
    model: nn.Module, observations: Observations, depth: Depth
) -> tuple[list[BlockCandidate], list[str]]:
    """The blocks that keep their shape, in order, and a note for each stage of what may never be absent and why."""
    candidates, notes = list[BlockCandidate](), list[str]()
    holders = _holders(model) if observations.calls else {}
    observed = {path: _reason(model, path, observations, holders) for path in observations.calls}
    reasons = {path: reason for path, reason in observed.items() if reason is not None}
    for stage, blocks in stages(model, observed, depth).items():
        fixed: dict[str, list[str]] = {}  # by reason
        free: list[str] = []
        for path in blocks:
            reason = observed.get(path, "it is never called") if wanted(path, depth) is not False else "you excluded it"
            if reason is None and not free and not fixed and not _has_layers_beside(model, stage, path, blocks):
                reason = "it is the first of its stage, and a stage is never empty"
            if reason is None:
                free.append(path)
            else:
                fixed.setdefault(reason, []).append(path)
                reasons[path] = reason
        candidates += [BlockCandidate(path, stage, _way(observations, path)) for path in free]
        notes += [never_absent(paths, reason) for reason, paths in fixed.items()]
    notes += _notes_on_patterns(model, depth, [each.path for each in candidates], reasons)
    return _with_plain(observations, candidates), notes


def tie_streams(observations: Observations, candidates: Sequence[BlockCandidate]) -> None:
    """Unite what goes into a block with what comes out: when it is absent, they are the same."""
    for candidate in candidates:
        for before, after in _streams(observations, candidate):
            observations.labels.unite(before, after, f"{candidate.path} may be absent")


def never_absent(paths: Collection[str], reason: str) -> str:
    """The note on blocks that were looked at, but must stay."""
    return f"{', '.join(paths)} can never be absent: {reason}"


def _has_layers_beside(model: nn.Module, stage: str, path: str, blocks: Sequence[str]) -> bool:
    """Whether a single layer, which was named, has other layers beside it that stay."""
    is_layer = next(model.get_submodule(path).children(), None) is None
    others = [model.get_submodule(child) for child in children_of(model, stage) if child not in blocks]
    return is_layer and any(next(other.parameters(), None) is not None for other in others)


def _notes_on_patterns(
    model: nn.Module, depth: Depth, candidates: Sequence[str], reasons: Mapping[str, str]
) -> list[str]:
    """Notes on patterns that name blocks, none of which may be absent."""
    notes = []
    for pattern in depth_patterns(depth):
        if pattern.startswith("!") or any(matches(path, [pattern]) for path in candidates):
            continue
        named = [path for path, _ in model.named_modules() if path and matches(path, [pattern])]
        for path in [path for path in named if block_around(path, named) is None]:
            notes.append(never_absent([path], reasons.get(path, "it is not one of the blocks of a stage")))
    return notes


def _way(observations: Observations, path: str) -> str:
    alone = all(call is not None and call.alone for call in observations.calls[path])
    return REPLACED if alone else DROPPED


def _reason(model: nn.Module, path: str, observations: Observations, holders: Holders) -> str | None:
    """Why a module that was called cannot be left out, or None if nothing speaks against it."""
    calls = [call for call in observations.calls[path] if call is not None]
    if len(calls) < len(observations.calls[path]):
        return "it does not map one tensor to one of the same shape"
    if len({call.model_call for call in calls}) < len(calls):
        return "it is called more than once"
    if any(call.overwritten for call in calls):
        return "it overwrites what goes into it (an operation in place), which could not pass by then"
    if _way(observations, path) == DROPPED and not can_drop(model, path):
        return "it is called with more than one tensor, or returns more"
    if path in observations.met_outside:
        return "what comes out meets what goes in outside of it (a sum, say, would be doubled); put that inside"
    if any(not parameter.dim() for parameter in model.get_submodule(path).parameters()):
        return "it holds a parameter without dimensions"
    if _shares_weights(model.get_submodule(path), holders):
        return "it shares weights with another module"
    dims = [pair for call in calls for pair in zip(call.before, call.after, strict=True)]
    if any(before.labelled != after.labelled for before, after in dims):
        return "what goes in cannot change its width, or what comes out cannot"
    return None


def _holders(model: nn.Module) -> Holders:
    holders: dict[int, set[int]] = {}
    for module in model.modules():
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            holders.setdefault(id(tensor), set()).add(id(module))
    return holders


def _shares_weights(module: nn.Module, holders: Holders) -> bool:
    """Whether a module outside holds one of the tensors inside."""
    inside = set(map(id, module.modules()))
    return any(holders[id(tensor)] - inside for tensor in (*module.parameters(), *module.buffers()))


def _with_plain(observations: Observations, candidates: Sequence[BlockCandidate]) -> list[BlockCandidate]:
    """Mark those without a shortcut: before `tie_streams`, what goes in and what comes out are different units."""
    root = resolve(observations.labels).root if candidates else np.zeros(0, dtype=np.int64)

    def differ(before: Dim, after: Dim) -> bool:
        into, out = before.vector(), after.vector()
        owned = (into > 0) & (out > 0)  # what is fixed or constant says nothing
        return bool((root[into[owned]] != root[out[owned]]).any())

    return [replace(each, plain=any(differ(*pair) for pair in _streams(observations, each))) for each in candidates]


def _streams(observations: Observations, candidate: BlockCandidate) -> Iterator[tuple[Dim, Dim]]:
    """The dimensions that go into a block, each with what comes out there."""
    for call in observations.calls[candidate.path]:
        assert call is not None
        yield from zip(call.before, call.after, strict=True)
