"""What the optimizers that are known keep for every parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import optim

from meristem.errors import SurgeryError
from meristem.rules import OptimizerRule, StateKind

FIRST, SECOND = StateKind.FIRST_MOMENT, StateKind.SECOND_MOMENT
ROW, COLUMN = StateKind.ROW_MOMENT, StateKind.COLUMN_MOMENT
_ADAM = {"exp_avg": FIRST, "exp_avg_sq": SECOND, "max_exp_avg_sq": SECOND}

# Variants (amsgrad, centered, Nesterov, foreach, fused, capturable, maximize) keep a part of what their rule names.
# Classes that torch has only since a late version, and those of other packages, are known by their names.
OPTIMIZER_RULES = (
    OptimizerRule(optim.SGD, {"momentum_buffer": FIRST}),
    OptimizerRule(optim.Adam, _ADAM),
    OptimizerRule(optim.AdamW, _ADAM),
    OptimizerRule(optim.RMSprop, {"square_avg": SECOND, "momentum_buffer": FIRST, "grad_avg": FIRST}),
    OptimizerRule(optim.Adagrad, {"sum": SECOND}),
    OptimizerRule(optim.Adadelta, {"square_avg": SECOND, "acc_delta": SECOND}),
    OptimizerRule(optim.Adamax, {"exp_avg": FIRST, "exp_inf": SECOND}),
    OptimizerRule(optim.NAdam, {"exp_avg": FIRST, "exp_avg_sq": SECOND}),
    OptimizerRule(optim.RAdam, {"exp_avg": FIRST, "exp_avg_sq": SECOND}),
    OptimizerRule(optim.ASGD, {"ax": StateKind.WEIGHTS}),
    OptimizerRule(optim.Rprop, {"prev": FIRST, "step_size": SECOND}),
    OptimizerRule("torch.optim.Adafactor", {"row_var": ROW, "col_var": COLUMN, "variance": SECOND}),
    OptimizerRule("torch.optim.Muon", {"momentum_buffer": FIRST}),
    OptimizerRule(
        "transformers.optimization.Adafactor",
        {"exp_avg_sq_row": ROW, "exp_avg_sq_col": COLUMN, "exp_avg_sq": SECOND, "exp_avg": FIRST},
    ),
    OptimizerRule("Lion", {"exp_avg": FIRST}),
)


def state_kinds(optimizer: optim.Optimizer, own: Sequence[OptimizerRule]) -> Mapping[str, StateKind]:
    """What an optimizer keeps, by the user's own rules or those above; an unknown one is refused by name."""
    kind = type(optimizer)
    for rule in (*own, *OPTIMIZER_RULES):
        if rule.fits(kind):
            return rule.state
    known = ", ".join(dict.fromkeys(rule.name for rule in OPTIMIZER_RULES))
    raise SurgeryError(
        f"the state of {kind.__name__} is not understood, so it cannot be resized; use one of {known}, or say what it "
        f'keeps: rules=[meristem.rules.OptimizerRule({kind.__name__}, {{"exp_avg": StateKind.FIRST_MOMENT, ...}})]'
    )
