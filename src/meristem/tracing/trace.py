"""``trace``: read a model. Run it with labels, decide what the units are, prove it, describe it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from meristem.cost.count import cost_at
from meristem.errors import TraceError
from meristem.space.arrays import BoolArray, IntArray
from meristem.space.rules import BUILT_IN, HEADS_TIED_TO_INPUT, LayerRule, OpRule, Rule, attribute_and_index
from meristem.space.space import Role, Space
from meristem.tracing.depth.candidates import Candidate, Depth, candidates, tie_streams, watched, with_plain
from meristem.tracing.depth.groups import with_depth
from meristem.tracing.grouping import Draft, build, draft, remembered_sizes
from meristem.tracing.labelled_run import Run
from meristem.tracing.labels import Labels, dim_of
from meristem.tracing.model_call import Call, Carried, call_of
from meristem.tracing.model_copy import copy_with, named_tensors, tensors_in
from meristem.tracing.observations import Grid, OpError, Record, TensorDim
from meristem.tracing.proof import Prover, Scalars, Sizes, follow
from meristem.tracing.resolve import resolve

_ROUNDS = 400  # a proof that needs more corrections than this is given up: everything is pinned


def trace(
    model: nn.Module,
    example_inputs: Any,
    *,
    pin: str | Sequence[str] = (),
    rules: Sequence[Rule] = (),
    strict: bool = False,
    depth: Depth = False,
    carried: Carried | None = None,
) -> Space:
    """Describe what in ``model`` may grow and shrink, and what it costs.

    ``example_inputs`` is a tensor, a tuple of positional inputs, or a dict of named ones. ``pin`` takes patterns on
    module paths (``"stem.*"``) whose units must stay. ``rules`` describe layers and operations of your own.
    ``strict=True`` raises on an operation that is not understood, instead of pinning what it touches. ``depth=True``
    finds blocks that may be absent, in sequences and lists of modules; patterns on module paths name them, or exclude
    some (``"!stages.0.*"``). ``carried=1`` says that input 1 is the state which the model returned as output 1 of the
    call before (or a name, where inputs and outputs have names): its sizes follow the units, and ``example_inputs`` may
    leave it out. The model is not changed: not its weights, mode, hooks, nor the random state.
    """
    if not isinstance(model, nn.Module):
        raise TraceError(f"trace needs an nn.Module, got {type(model).__name__}; pass the model itself")
    if isinstance(model, torch.jit.ScriptModule):
        raise TraceError("a ScriptModule cannot be resized; trace the nn.Module it was made from")
    call = call_of(model, *_inputs(example_inputs), carried)
    patterns = [pin] if isinstance(pin, str) else list(pin)
    generators = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(generators), torch.inference_mode(False), torch.no_grad():
        return _Tracer(model, call, patterns, rules, strict, depth).space()


def _inputs(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
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


class _Tracer:
    def __init__(
        self,
        model: nn.Module,
        call: Call,
        pin: Sequence[str],
        rules: Sequence[Rule],
        strict: bool,
        depth: Depth,
    ) -> None:
        self.original, self.patterns, self.strict, self.depth = model, list(pin), strict, depth
        self.layer_rules = [rule for rule in rules if isinstance(rule, LayerRule)] + list(BUILT_IN)
        self.like = {rule.op: rule.like for rule in rules if isinstance(rule, OpRule)}
        self.notes: list[str] = []
        self.call = call
        self.tied: dict[type[nn.Module], list[int]] = {}
        self.given_up: set[type[nn.Module]] = set()

    def space(self) -> Space:
        self._check_patterns()
        try:
            self._run_full(meta=True)
        except TraceError:
            raise
        except Exception as error:  # whatever the model's own code makes of tensors without numbers
            self.notes.append(f"traced with real numbers, because it does not run on the meta device ({_line(error)})")
            self._run_full(meta=False)
        if self.strict and self.record.unknown:
            op, path = next(iter(self.record.unknown.items()))
            raise TraceError(
                f"the operation {op} in {path or 'the model'} is not known; trace without strict=True to pin what it "
                f"touches, or pass rules=[OpRule({op!r}, like=...)]"
            )
        blocks, notes = candidates(self.original, self.record, self.depth)
        blocks = with_plain(self.record, blocks)
        tie_streams(self.record, blocks)
        self._apply_ties()
        self._apply_patterns()
        self._tie([grid for grid in self.record.grids if issubclass(grid.layer, HEADS_TIED_TO_INPUT)])
        made, sizes = self._proven()
        absent = self._confirmed(made, sizes, blocks)
        self.notes += notes
        space = with_depth(build(made, self.original, dict(sizes), self.notes), absent, self.original)
        space = replace(space, carried=self.call.carried)
        return replace(space, costs=(cost_at(space, space.smallest), cost_at(space, space.full)))

    # --- the full run ---

    def _run_full(self, meta: bool) -> None:
        self.meta = meta
        call = self.call.mapped(_to_meta) if meta else self.call
        self.record = Record(Labels(), watched=watched(self.original, self.depth))
        scalars: dict[bool, Scalars] = {}
        problem: Exception | None = None
        for training in (False, True):
            model = self._copy(meta).train(training)
            run = Run(model, self.record, self.like, meta=meta, counting=not training)
            try:
                follow(run, call)
                scalars[training] = run.scalars
            except Exception as error:
                problem = error
                if not training and meta:
                    raise
                if not training:
                    again = run.calls > 1
                    what = "with the state it returned" if again else "on the example inputs"
                    do = "give it back what it returned to see why" if again else "call it with them to see why"
                    raise TraceError(f"the model does not run {what} ({_line(error)}); {do}") from error
        if True not in scalars:
            self.notes.append(f"read in evaluation mode only, because training mode does not run ({_line(problem)})")
        self.prover = Prover(self._copy(meta), call, self.like, scalars, meta)

    def _copy(self, meta: bool) -> nn.Module:
        try:
            return copy_with(self.original, lambda _, tensor: _clone(tensor, meta), meta)
        except Exception as error:
            raise TraceError(
                f"the model cannot be copied ({type(error).__name__}: {_line(error)}); trace works on a copy, so every "
                f"attribute must survive copy.deepcopy"
            ) from error

    # --- what is known beforehand ---

    def _apply_ties(self) -> None:
        canonical = self._canonical()
        for (path, name, _), found in self.record.sizes.items():
            for one, two in pairwise(found):
                if len(one) == len(two):
                    self.record.labels.unite(dim_of(one), dim_of(two), f"{path}.{name} is the size of both")
        for path, module in self.original.named_modules():
            for rule in self.layer_rules:
                if not isinstance(module, rule.layer):
                    continue
                for tie in rule.ties(module):
                    dims = [self.record.owned.get((canonical.get(_join(path, name), ""), dim)) for name, dim in tie]
                    known = [dim for dim in dims if dim is not None]
                    for before, after in pairwise(known):
                        self.record.labels.unite(before, after, f"{type(module).__name__} {path} has one size for both")

    def _canonical(self) -> dict[str, str]:
        first = {id(tensor): name for name, tensor in reversed(list(named_tensors(self.original)))}
        every = [
            *self.original.named_parameters(remove_duplicate=False),
            *self.original.named_buffers(remove_duplicate=False),
        ]
        return {name: first[id(tensor)] for name, tensor in every}

    def _layer_sizes(self) -> dict[tuple[str, str, int | None], list[tuple[int, IntArray | None]]]:
        canonical = self._canonical()
        found: dict[tuple[str, str, int | None], list[tuple[int, IntArray | None]]] = {}
        for path, module in self.original.named_modules():
            for rule in self.layer_rules:
                if not isinstance(module, rule.layer):
                    continue
                for name, tensor, dim in rule.sizes(module):
                    owned = self.record.owned.get((canonical.get(_join(path, tensor), ""), dim))
                    attribute, index = attribute_and_index(name)
                    value = getattr(module, attribute, None)
                    if index is not None and isinstance(value, (tuple, list)) and index < len(value):
                        value = value[index]
                    if owned is not None and value == owned.size:
                        found[path, attribute, index] = [(owned.size, owned.ids)]
        return found

    def _floors(self) -> dict[TensorDim, int]:
        canonical, found = self._canonical(), dict[TensorDim, int]()
        for path, module in self.original.named_modules():
            for rule in self.layer_rules:
                for name, dim, least in rule.floors(module) if isinstance(module, rule.layer) else ():
                    found[canonical.get(_join(path, name), ""), dim] = least
        return found

    def _check_patterns(self) -> None:
        paths = [path for path, _ in self.original.named_modules() if path]
        for pattern in self.patterns:
            if not any(fnmatch.fnmatchcase(path, pattern) for path in paths):
                near = get_close_matches(pattern, paths, 3, 0.4) or paths[:3]
                known = f"the nearest are {', '.join(near)}" if near else "the model has no submodules"
                raise TraceError(f"pin={pattern!r} matches no module; {known}")

    def _apply_patterns(self) -> None:
        """Pin what matching modules, and all modules inside them, make or pass along; not what they read."""
        for (name, dim), owned in self.record.owned.items():
            roles = self.record.roles.get((name, dim), set())
            if Role.IN in roles and Role.OUT not in roles:
                continue
            parts = name.split(".")[:-1]
            inside = [".".join(parts[: end + 1]) for end in range(len(parts))]
            for pattern in self.patterns:
                if any(fnmatch.fnmatchcase(path, pattern) for path in inside):
                    self.record.labels.pin(owned, f"you pinned it (pin={pattern!r})")

    # --- heads ---

    def _tie(self, grids: Sequence[Grid]) -> bool:
        """Tie rows x columns of a layer's own reshape to the width it reads; whether anything could be tied."""
        labels, tied = self.record.labels, False
        for grid in grids:
            whole = next(
                (dim for dim in grid.inputs if dim.labelled and dim.size == len(grid.rows) * len(grid.columns)),
                None,
            )
            if whole is None or grid.layer in self.given_up:
                continue
            before = len(labels.edges)
            cells = labels.merge([dim_of(grid.rows), dim_of(grid.columns)])
            labels.unite(cells, whole, f"{grid.path} has one width for both")
            self.tied.setdefault(grid.layer, []).extend(range(before, len(labels.edges)))
            tied = True
        return tied

    def _untie(self, layer: type[nn.Module]) -> None:
        nothing = np.zeros(0, dtype=np.int64)
        for at in self.tied.pop(layer):
            self.record.labels.edges[at] = (nothing, nothing)
        self.given_up.add(layer)

    # --- the proof ---

    def _proven(self) -> tuple[Draft, Sizes]:
        for _ in range(_ROUNDS):
            made = draft(self.record, resolve(self.record.labels), self.original, self._floors())
            sizes, notes = remembered_sizes(made, self._layer_sizes())
            failed = self._first_failure(made, sizes)
            if failed is None:
                self.notes += notes
                return made, sizes
            self._correct(made, sizes, failed)
        for dim in list(self.record.owned.values()):
            self.record.labels.pin(dim, "the proof that it may change did not come to an end")
        made = draft(self.record, resolve(self.record.labels), self.original, self._floors())
        return made, {}

    def _first_failure(self, made: Draft, sizes: Sizes) -> OpError | None:
        if not made.groups:
            return None
        for number, masks in enumerate(_plans(made)):
            failed = self.prover.failure(made, sizes, masks)
            if failed is not None:
                failed.plan = number
                return failed
        return None

    def _confirmed(self, made: Draft, sizes: Sizes, blocks: Sequence[Candidate]) -> list[Candidate]:
        """Those of the blocks without which the model runs, at full and at other widths."""
        full = {group.name: np.ones(group.units, dtype=np.bool_) for group in made.groups}
        plans = [full, *_plans(made)[:2]] if made.groups else [full]
        ways = {block.path: block.way for block in blocks}

        failures: list[OpError] = []

        def fails(paths: Sequence[str]) -> bool:
            absent = {path: ways[path] for path in paths}
            found = (self.prover.failure(made, sizes, masks, absent=absent) for masks in plans)
            failed = next((failure for failure in found if failure is not None), None)
            failures.extend([] if failed is None else [failed])
            return failed is not None

        guilty = _guilty([block.path for block in blocks], fails)
        if guilty:
            why = f"the model does not run without it as it does with it ({_line(failures[-1])})"
            self.notes.append(f"{', '.join(sorted(guilty))} can never be absent: {why}")
        return [block for block in blocks if block.path not in guilty]

    def _correct(self, made: Draft, sizes: Sizes, failed: OpError) -> None:
        """Pin what the failure is due to, or tie heads to the width they are read from when that may be the cause."""
        suspects = {name for dim in failed.dims if dim.ids is not None for name in made.groups_in(dim.ids)}
        every = [group.name for group in made.groups]
        fails = self._tester(made, sizes, failed)
        blamed = _guilty(sorted(suspects), fails) or _guilty(every, fails) or suspects or set(every)
        layers = {grid.layer for grid in self.record.grids if made.groups_in(grid.rows) & blamed}
        fresh = [grid for grid in self.record.grids if grid.layer in layers - set(self.tied) - self.given_up]
        if fresh and self._tie(fresh):
            return
        for layer in layers & set(self.tied):
            self._untie(layer)
        reason = f"{failed.where} does not work with another size of it ({_line(failed)})"
        numbers = [number for number, group in enumerate(made.groups) if group.name in blamed]
        self.record.labels.pin_ids(np.flatnonzero(np.isin(made.group_of, numbers)), reason)
        self._pin_alike(made, blamed, reason)

    def _pin_alike(self, made: Draft, blamed: set[str], reason: str) -> None:
        """A head size that cannot change in one layer cannot at the same reshape of others of its class."""
        grids = list(_numbered(self.record.grids))
        alike = {(grid.layer, number) for grid, number in grids if made.groups_in(grid.columns) == blamed}
        for grid, number in grids:
            if (grid.layer, number) in alike:
                self.record.labels.pin_ids(grid.columns, reason)

    def _tester(self, made: Draft, sizes: Sizes, failed: OpError) -> Callable[[Sequence[str]], bool]:
        """Whether the failing plan still fails at the same place when only the named groups are reduced."""
        masks = _plans(made)[failed.plan]

        def fails(names: Sequence[str]) -> bool:
            only = {name: mask if name in names else np.ones_like(mask) for name, mask in masks.items()}
            again = self.prover.failure(made, sizes, only, [failed.training])
            return again is not None and again.where == failed.where

        return fails


def _guilty(suspects: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> set[str]:
    """Those of the suspects that fail on their own, found by halving; all of them if they only fail together."""
    if not suspects or not fails(suspects):
        return set()
    if len(suspects) == 1:
        return set(suspects)
    half = len(suspects) // 2
    return _guilty(suspects[:half], fails) | _guilty(suspects[half:], fails) or set(suspects)


def _numbered(grids: Sequence[Grid]) -> Iterator[tuple[Grid, int]]:
    """Grids with their number inside their own module."""
    seen: dict[str, int] = {}
    for grid in grids:
        seen[grid.path] = seen.get(grid.path, -1) + 1
        yield grid, seen[grid.path]


def _plans(made: Draft) -> list[dict[str, BoolArray]]:
    """What a proof tries: one unit less in every group, random widths, as few units as may be, and equal widths."""
    random = np.random.default_rng(0)
    full = {group.name: np.ones(group.units, dtype=np.bool_) for group in made.groups}
    less, some, one, same = ({name: mask.copy() for name, mask in full.items()} for _ in range(4))
    for group in made.groups:
        name, units = group.name, group.units
        less[name][units // 2] = False
        width = random.integers(max(group.min_units, min(2, units - 1)), units)
        some[name][random.permutation(units)[width:]] = False
        one[name][: -group.min_units] = False
    # Code that compares the sizes of two groups may go another way only where they are equal.
    equal = min((group.units for group in made.groups if group.units > 1), default=1)
    for group in made.groups:
        if group.min_units <= equal:
            same[group.name][equal:] = False
    return [less, some, one] if all(mask.all() for mask in same.values()) else [less, some, one, same]


def _to_meta(value: Any) -> Any:
    return value.detach().to("meta") if isinstance(value, Tensor) else value


def _clone(tensor: Tensor, meta: bool) -> Tensor:
    return tensor.detach().to("meta") if meta else tensor.detach().clone()


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _line(error: BaseException | None) -> str:
    text = str(error).strip().splitlines()
    return text[0][:160] if text else type(error).__name__
