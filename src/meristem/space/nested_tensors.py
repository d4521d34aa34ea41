"""torch's shortcut through nested tensors, which ``nn.TransformerEncoder`` takes in evaluation."""

from __future__ import annotations

from torch import nn


def leave_shortcut(model: nn.Module) -> None:
    """Let encoders whose layers have an odd number of heads take the plain path.

    An encoder decides once, when it is made, whether its layers take nested tensors. With an odd number of heads they
    do not, and it raises.
    """
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and module.use_nested_tensor:
            attention = [part for part in module.modules() if isinstance(part, nn.MultiheadAttention)]
            if any(part.num_heads % 2 for part in attention):
                module.use_nested_tensor = False
