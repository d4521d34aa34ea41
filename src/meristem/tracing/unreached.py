"""Parameters that the example inputs never reach: nobody can tell what they go together with."""

from __future__ import annotations

from torch import nn

from meristem.space.paths import layer_path
from meristem.tracing.observations import Observations


def unreached_layers(observations: Observations, model: nn.Module) -> dict[str, int]:
    """The layers with parameters that were not used, each with the first size of the first of these."""
    layers: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        if name not in observations.users and name not in {key for key, _ in observations.owned}:
            layers.setdefault(layer_path(name), len(parameter) if parameter.dim() else 1)
    return layers


def unreached_notes(observations: Observations, model: nn.Module) -> list[str]:
    """What a user should know about them."""
    layers = list(unreached_layers(observations, model))
    if not layers:
        return []
    rest = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
    return [
        f"the example inputs never reach {layers[0]}{rest}: it stays as it is, and will not fit what it reads if that "
        f"shrinks; give example_inputs that reach it, or pin the layers before it"
    ]
