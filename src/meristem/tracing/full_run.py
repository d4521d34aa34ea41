"""Reading a model: run all of it with labels, in evaluation and in training mode."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from meristem.errors import TraceError
from meristem.tracing.behaviour import Behaviour
from meristem.tracing.labelled_run import LabelledRun
from meristem.tracing.labels import Labels
from meristem.tracing.meta_results import MetaResults
from meristem.tracing.model_call import Call
from meristem.tracing.model_copy import ResizedCopies, copy_with
from meristem.tracing.observations import Observations
from meristem.tracing.own_ops import OwnOps
from meristem.tracing.restriction import Restriction
from meristem.tracing.run_record import RunRecord


@dataclass(frozen=True)
class FullRun:
    """What the full model showed.

    ``copies`` are of the model, on the meta device if there is ``meta``, and ``call`` has its inputs there, too.
    ``records`` are those of each mode (training or not) in which the model runs.
    """

    copies: ResizedCopies
    call: Call
    own: OwnOps
    meta: MetaResults | None
    observations: Observations
    records: Mapping[bool, RunRecord]
    notes: tuple[str, ...]
    behaviour: Behaviour


def run_full(model: nn.Module, call: Call, own: OwnOps, watched: Set[str]) -> FullRun:
    """Run copies of the model on the meta device or, if that fails, with real numbers.

    ``own`` are operations of the user's; ``watched`` are the modules that may turn out to be blocks.
    """
    try:
        return _run(model, call.mapped(_to_meta), own, watched, MetaResults())
    except TraceError:
        raise
    except Exception as error:  # whatever the model's own code makes of tensors without numbers
        note = f"traced with real numbers, because it does not run on the meta device ({first_line(error)})"
        return _run(model, call, own, watched, None, (note,))


def _run(
    model: nn.Module,
    call: Call,
    own: OwnOps,
    watched: Set[str],
    meta: MetaResults | None,
    notes: tuple[str, ...] = (),
) -> FullRun:
    observations = Observations(Labels(), watched=set(watched))
    records: dict[bool, RunRecord] = {}
    copies = ResizedCopies(_copy(model, meta is not None), meta is not None)
    behaviour = Behaviour()
    restriction = Restriction(behaviour, observations.owned)
    for training in (False, True):
        copied = copies.make(lambda _, tensor: _clone(tensor, meta is not None)).train(training)
        run = LabelledRun(copied, observations, own, meta=meta, counting=not training)
        if meta is not None:
            run.replaying(restriction)
        try:
            run.follow(call)
            records[training] = run.record
            notes = _with_uncounted(notes, call, run.uncounted)
        except Exception as error:
            if training:
                reason = f"because training mode does not run ({first_line(error)})"
                notes = (*notes, f"read in evaluation mode only, {reason}")
            elif meta is not None:
                raise
            else:
                again = run.calls > 1
                what = "with the state it returned" if again else "on the example inputs"
                do = "give it back what it returned to see why" if again else "call it with them to see why"
                if not any(tensor.is_floating_point() for tensor in call.tensors()):
                    do += "; they are whole numbers: pass x.float() if the model takes real ones"
                raise TraceError(f"the model does not run {what} ({first_line(error)}); {do}") from error
    return FullRun(copies, call, own, meta, observations, records, notes, behaviour)


def _with_uncounted(notes: tuple[str, ...], call: Call, uncounted: list[str]) -> tuple[str, ...]:
    """Tell of outputs that do not count though the user has not said so."""
    note = f"outputs that may change their size: {', '.join(uncounted)}; trace(..., outputs='all') keeps them"
    return notes if call.outputs is not None or not uncounted or note in notes else (*notes, note)


def _copy(model: nn.Module, meta: bool) -> nn.Module:
    try:
        return copy_with(model, lambda _, tensor: _clone(tensor, meta), meta)
    except Exception as error:
        raise TraceError(
            f"the model cannot be copied ({type(error).__name__}: {first_line(error)}); trace works on a copy, so "
            f"every attribute must survive copy.deepcopy"
        ) from error


def _to_meta(value: Any) -> Any:
    return value.detach().to("meta") if isinstance(value, Tensor) else value


def _clone(tensor: Tensor, meta: bool) -> Tensor:
    return tensor.detach().to("meta") if meta else tensor.detach().clone()


def first_line(error: BaseException) -> str:
    """The first line of a message, shortened; the class if there is no message.

    >>> first_line(ValueError("no such size\\ndetails")), first_line(KeyError())
    ('no such size', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
