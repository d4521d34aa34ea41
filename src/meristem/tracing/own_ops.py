"""Operations of the user's own: what rules say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch

from meristem.errors import TraceError, nearest
from meristem.rules import OpRule, Rule
from meristem.tracing.operation import is_pointwise
from meristem.tracing.ops.context import OpRuleFunction
from meristem.tracing.ops.op import Op
from meristem.tracing.ops.table import OPS

OwnOps = Mapping[str, str | Op]  # by "library::operation": a known one that it is like, or an entry of its own


def own_ops(rules: Sequence[Rule]) -> OwnOps:
    """What ``rules`` say of operations."""
    return {rule.op: _entry(rule) for rule in rules if isinstance(rule, OpRule)}


def _entry(rule: OpRule) -> str | Op:
    if bool(rule.like) == (rule.rule is not None):
        raise TraceError(f"OpRule({rule.op!r}) needs either like=, a known operation, or rule=, a function")
    if rule.rule is not None:
        return Op(cast(OpRuleFunction, rule.rule), zeros_count=rule.zeros_count)
    packet = getattr(torch.ops.aten, rule.like, None)
    if rule.like not in OPS and not (packet is not None and is_pointwise(packet.default, rule.like)):
        names = [name for name in OPS if not name.startswith("_")]
        raise TraceError(
            f"OpRule({rule.op!r}, like={rule.like!r}): no such operation is known; "
            f"{nearest(rule.like, names, shown=('relu', 'native_layer_norm', 'mm', '...'))}"
        )
    return rule.like
