"""Running the model without its blocks: which of them can really be absent."""

from __future__ import annotations

from collections.abc import Sequence

from meristem.tracing.depth.candidates import BlockCandidate, never_absent
from meristem.tracing.proof import Proven
from meristem.tracing.reduced_run import Failure, ReducedRuns
from meristem.tracing.trials import guilty, trial_masks


def confirmed_blocks(
    proven: Proven, candidates: Sequence[BlockCandidate], runs: ReducedRuns
) -> tuple[list[BlockCandidate], list[str]]:
    """Those of the blocks without which the model runs, at full and at other widths, and a note on the others."""
    grouping = proven.grouping
    trials = [grouping.full_masks(), *(trial_masks(grouping)[:2] if grouping.groups else ())]
    ways = {block.path: block.way for block in candidates}
    failures: list[Failure] = []

    def fails(paths: Sequence[str]) -> bool:
        absent = {path: ways[path] for path in paths}
        for masks in trials:
            failure = runs.failure(grouping, proven.sizes, masks, absent=absent)
            if failure is not None:
                failures.append(failure)
                return True
        return False

    needed = guilty([block.path for block in candidates], fails)
    notes = []
    if needed:
        reason = f"the model does not run without it as it does with it ({failures[-1].message})"
        notes.append(never_absent(sorted(needed), reason))
    return [block for block in candidates if block.path not in needed], notes
