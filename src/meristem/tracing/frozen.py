"""Frozen parameters: what is not trained tells nothing about its units, and is kept as it is unless told otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from meristem.errors import TraceError
from meristem.space.paths import layer_path
from meristem.tracing.observations import Observations


def check_frozen(frozen: str) -> None:
    """Refuse any word but these two."""
    if frozen not in ("pin", "resize"):
        raise TraceError(
            f"frozen={frozen!r} is not known; 'pin' keeps the size of what frozen parameters have units of, "
            f"'resize' lets it change"
        )


def pin_frozen(observations: Observations, model: nn.Module) -> Sequence[str]:
    """Pin the units of frozen parameters; notes on that. Where all are frozen, none is more so than another."""
    parameters = dict(model.named_parameters())
    frozen = [name for name, parameter in parameters.items() if not parameter.requires_grad]
    if len(frozen) == len(parameters):
        return ["no parameter is trained (requires_grad is False for all), so none counts as frozen"] if frozen else []
    pinned = [name for name in frozen if _pin(observations, name, parameters[name].dim())]
    if not pinned:
        return []
    rest = f" and {len(pinned) - 1} others" if len(pinned) > 1 else ""
    return [f"the units of {pinned[0]}{rest} stay, because they are frozen; trace(..., frozen='resize') frees them"]


def _pin(observations: Observations, name: str, rank: int) -> bool:
    """Pin what a frozen parameter has units of; whether that is anything."""
    owned = [observations.owned[name, dim] for dim in range(rank) if (name, dim) in observations.owned]
    for dim in owned:
        observations.labels.pin(dim, f"{layer_path(name)} is frozen (requires_grad is False)")
    return any(dim.labelled for dim in owned)
