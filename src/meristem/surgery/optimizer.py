"""Optimizers: a resized parameter takes its predecessor's slot, and its state moves with it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn, optim

from meristem.errors import SurgeryError

# For each optimizer the state tensors shaped like the parameter, and whether they are second moments. A second moment
# of zero is not neutral (the first steps would be several times too long), so fresh units start with the mean.
_STATE: dict[type[optim.Optimizer], dict[str, bool]] = {
    optim.SGD: {"momentum_buffer": False},
    optim.Adam: {"exp_avg": False, "exp_avg_sq": True, "max_exp_avg_sq": True},
    optim.AdamW: {"exp_avg": False, "exp_avg_sq": True, "max_exp_avg_sq": True},
    optim.RMSprop: {"square_avg": True, "momentum_buffer": False, "grad_avg": False},
}

Exchange = Callable[[str, Tensor, float], Tensor]  # (state key, current, value where nothing ever lived) -> resized


def check_optimizer(optimizer: optim.Optimizer, model: nn.Module) -> None:
    """Refuse an optimizer whose state cannot be resized, or that trains nothing of ``model``."""
    if type(optimizer) not in _STATE:
        supported = ", ".join(kind.__name__ for kind in _STATE)
        raise SurgeryError(
            f"the state of {type(optimizer).__name__} is not understood, so it cannot be resized; use one of "
            f"{supported}"
        )
    if not {id(parameter) for parameter in model.parameters()} & set(slots_of(optimizer)):
        raise SurgeryError(
            "the optimizer holds none of the model's parameters; make it from model.parameters() of this model"
        )


def slots_of(optimizer: optim.Optimizer) -> dict[int, tuple[int, int]]:
    """Return where each parameter sits, by its id: (param group, index)."""
    return {
        id(parameter): (group, index)
        for group, entry in enumerate(optimizer.param_groups)
        for index, parameter in enumerate(entry["params"])
    }


def replace_parameter(
    optimizer: optim.Optimizer,
    slot: tuple[int, int],
    old: nn.Parameter,
    new: nn.Parameter,
    exchange: Exchange,
) -> None:
    """Put ``new`` into the slot of ``old``; state tensors shaped like it are exchanged, the rest is kept."""
    group, index = slot
    optimizer.param_groups[group]["params"][index] = new
    if old not in optimizer.state:
        return
    state = optimizer.state.pop(old)
    for key, second_moment in _STATE[type(optimizer)].items():
        if isinstance(state.get(key), Tensor):
            fresh = float(state[key].mean()) if second_moment else 0.0
            state[key] = exchange(key, state[key], fresh)
    optimizer.state[new] = state


def drop_state(optimizer: optim.Optimizer, slot: tuple[int, int], old: nn.Parameter, new: nn.Parameter) -> None:
    """Put ``new`` into the slot of ``old``, without any state."""
    group, index = slot
    optimizer.param_groups[group]["params"][index] = new
    optimizer.state.pop(old, None)


def lr_frac(optimizer: optim.Optimizer, start: float) -> float:
    """Return the learning rate over that of the start: the one a scheduler notes, or else ``start``."""
    first = optimizer.param_groups[0]
    start = float(first.get("max_lr", first.get("initial_lr", start)))
    return float(first["lr"]) / start if start else 1.0
