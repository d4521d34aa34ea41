"""``trace``: read a model. Run it with labels, decide what the units are, prove it, describe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from meristem.cost.count import cost_at
from meristem.errors import TraceError
from meristem.rules import LayerRule, Rule
from meristem.space.paths import ancestors
from meristem.space.space import Role, Space
from meristem.tracing.builtin_layers import HEADS_TIED_TO_INPUT, layer_rules
from meristem.tracing.collector import collector_paused
from meristem.tracing.counted_outputs import as_choice
from meristem.tracing.depth.candidates import block_candidates, tie_streams
from meristem.tracing.depth.confirmation import confirmed_blocks
from meristem.tracing.depth.groups import with_depth
from meristem.tracing.depth.patterns import Depth, depth_patterns
from meristem.tracing.depth.stages import watched_modules
from meristem.tracing.frozen import check_frozen, pin_frozen
from meristem.tracing.full_run import run_full
from meristem.tracing.layer_rules import LayerRules
from meristem.tracing.model_call import Call, Carried, call_of
from meristem.tracing.model_copy import tensors_in
from meristem.tracing.observations import Observations
from meristem.tracing.own_ops import own_ops
from meristem.tracing.path_patterns import check_patterns, matches, patterns_in
from meristem.tracing.proof import Proof
from meristem.tracing.reduced_run import ReducedRuns
from meristem.tracing.refused_models import check_readable
from meristem.tracing.space_building import build_space
from meristem.tracing.unreached import unreached_notes
from meristem.tracing.view_ties import ViewTies

Frozen = Literal["pin", "resize"]


def trace(  # noqa: PLR0913
    model: nn.Module,
    example_inputs: Any,
    *,
    pin: str | Sequence[str] = (),
    rules: Sequence[Rule] = (),
    strict: bool = False,
    depth: Depth = False,
    carried: Carried | None = None,
    frozen: Frozen = "pin",
    outputs: int | str | Sequence[int | str] | None = None,
) -> Space:
    """Describe what in ``model`` may grow and shrink, and what it costs.

    ``example_inputs`` is a tensor, a tuple of positional inputs, or a dict of named ones. ``pin`` takes patterns on
    module paths (``"stem.*"``) whose units must stay. ``rules`` describe layers and operations of your own.
    ``strict=True`` raises on an operation that is not understood, instead of pinning what it touches. ``depth=True``
    finds blocks that may be absent, in sequences and lists of modules; patterns on module paths name them, or exclude
    some (``"!stages.0.*"``). ``carried=1`` says that input 1 is the state which the model returned as output 1 of the
    call before (or a name, where inputs and outputs have names): its sizes follow the units, and ``example_inputs`` may
    leave it out. ``outputs`` are the names or positions of the outputs that keep their size, or ``"all"``; by default
    all do, but where there is a loss or logits not the hidden states, attention maps and caches beside it. What has
    units in frozen parameters (``requires_grad`` is False) stays as it is, because nothing is learned about them; with
    ``frozen="resize"`` it may change. The model is not changed: not its weights, mode, hooks, nor the random state.
    """
    check_readable(model)
    check_frozen(frozen)
    call = call_of(model, *_inputs(example_inputs), carried, as_choice(outputs))
    check_patterns(model, "pin", patterns_in(pin))
    check_patterns(model, "depth", depth_patterns(depth) if depth else [])
    generators = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with collector_paused(), torch.random.fork_rng(generators), torch.inference_mode(False), torch.no_grad():
        return _space(model, call, patterns_in(pin), rules, strict, depth, frozen)


def _inputs(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the named inputs in an example."""
    if isinstance(example, Mapping):
        positional: tuple[Any, ...] = ()
        named = dict(example)
    else:
        positional, named = (example if isinstance(example, tuple) else (example,)), {}
    if not tensors_in((positional, named)):
        raise TraceError(
            "example_inputs holds no tensor; pass what you would call the model with, e.g. torch.randn(1, 3, 32, 32)"
        )
    return positional, named


def _space(
    model: nn.Module,
    call: Call,
    pin: Sequence[str],
    rules: Sequence[Rule],
    strict: bool,
    depth: Depth,
    frozen: Frozen,
) -> Space:
    full = run_full(model, call, own_ops(rules), watched_modules(model, depth))
    observations = full.observations
    if strict:
        _refuse_unknown(observations)
    candidates, depth_notes = block_candidates(model, observations, depth)

    # What is known beforehand about units that are the same or may not change.
    tie_streams(observations, candidates)
    own_rules = [rule for rule in rules if isinstance(rule, LayerRule)]
    known_layers = LayerRules(model, [*own_rules, *layer_rules()], observations)
    known_layers.tie()
    _pin_matching(observations, pin)
    frozen_notes = pin_frozen(observations, model) if frozen == "pin" else ()
    head_ties = ViewTies(observations, observations.grids)
    head_ties.tie_layers(HEADS_TIED_TO_INPUT)

    runs = ReducedRuns(full)
    proven = Proof(model, full, known_layers, head_ties, runs).proven()
    blocks, absence_notes = confirmed_blocks(proven, candidates, runs)
    frozen_notes = [*frozen_notes, *unreached_notes(observations, model)]
    notes = [*full.notes, *proven.notes, *absence_notes, *depth_notes, *frozen_notes]
    space = with_depth(build_space(proven.grouping, model, proven.sizes, notes), blocks, model)
    space = replace(space, carried=call.carried, outputs=call.outputs, numbers=proven.numbers)
    return replace(space, costs=(cost_at(space, space.smallest), cost_at(space, space.full)))


def _refuse_unknown(observations: Observations) -> None:
    for op, path in observations.unknown.items():
        raise TraceError(
            f"the operation {op} in {path or 'the model'} is not known; trace without strict=True to pin what it "
            f"touches, or pass rules=[OpRule({op!r}, like=...)]"
        )


def _pin_matching(observations: Observations, patterns: Sequence[str]) -> None:
    """Pin what matching modules, and all modules inside them, make or pass along; not what they read."""
    for (name, dim), owned in observations.owned.items():
        roles = observations.roles.get((name, dim), set())
        if Role.IN in roles and Role.OUT not in roles:
            continue
        for pattern in patterns:
            if any(matches(path, [pattern]) for path in ancestors(name)):
                observations.labels.pin(owned, f"you pinned it (pin={pattern!r})")
