"""What is known about torch's own layers: which remembered sizes follow which tensor, and which dimensions agree.

And about a layer of transformers that is in many models of it.
"""

from __future__ import annotations

import sys

from torch import nn

from meristem.rules import LayerRule


def _recurrent_sizes(layer: nn.Module) -> list[tuple[str, str, int]]:
    assert isinstance(layer, nn.RNNBase)
    sizes = [("input_size", "weight_ih_l0", 1)]
    if layer.proj_size:
        return [*sizes, ("proj_size", "weight_hr_l0", 0), ("hidden_size", "weight_hr_l0", 1)]
    return [*sizes, ("hidden_size", "weight_hh_l0", 1)]


def _recurrent_ties(layer: nn.Module) -> list[list[tuple[str, int]]]:
    """One ``hidden_size`` serves every layer and direction."""
    assert isinstance(layer, nn.RNNBase)
    hidden = [(name, 1) for name, _ in layer.named_parameters() if name.startswith("weight_hh")]
    projected = [(name, 1) for name, _ in layer.named_parameters() if name.startswith("weight_hr")]
    return [hidden, projected]


def _recurrent_floors(layer: nn.Module) -> list[tuple[str, int, int]]:
    """Torch tells a projected LSTM by its two sizes: the hidden one must stay above what the projection can have."""
    assert isinstance(layer, nn.RNNBase)
    return [("weight_hr_l0", 1, layer.proj_size + 1)] if layer.proj_size else []


def _normalized_sizes(layer: nn.Module) -> list[tuple[str, str, int]]:
    shape = layer.normalized_shape
    assert isinstance(shape, tuple)
    return [(f"normalized_shape[{dim}]", "weight", dim) for dim in range(len(shape))]


def _attention_sizes(layer: nn.Module) -> list[tuple[str, str, int]]:
    return [
        ("embed_dim", "out_proj.weight", 0),
        ("kdim", "out_proj.weight", 0),
        ("vdim", "out_proj.weight", 0),
    ]


LAYER_RULES: tuple[LayerRule, ...] = (
    LayerRule(nn.Linear, lambda layer: [("in_features", "weight", 1), ("out_features", "weight", 0)]),
    LayerRule(nn.Embedding, lambda layer: [("embedding_dim", "weight", 1)]),
    LayerRule(nn.EmbeddingBag, lambda layer: [("embedding_dim", "weight", 1)]),
    LayerRule(nn.RMSNorm, _normalized_sizes),
    LayerRule(nn.PReLU, lambda layer: [("num_parameters", "weight", 0)]),
    LayerRule(nn.RNNBase, _recurrent_sizes, _recurrent_ties, _recurrent_floors),
    LayerRule(nn.RNNCellBase, lambda layer: [("input_size", "weight_ih", 1), ("hidden_size", "weight_hh", 1)]),
    LayerRule(nn.MultiheadAttention, _attention_sizes),
)


def layer_rules() -> tuple[LayerRule, ...]:
    """What is known about layers; about those of another library where that is loaded, since a model of it can then be.

    ``Conv1D`` of GPT-2 is a linear layer that names both of its sizes; where they are equal, no operation tells which
    is which.
    """
    transformers = sys.modules.get("transformers.pytorch_utils")
    if transformers is None:
        return LAYER_RULES
    return (*LAYER_RULES, LayerRule(transformers.Conv1D, lambda layer: [("nx", "weight", 0), ("nf", "weight", 1)]))


# Layers whose code demands that inner and outer width are the same number: heads are tied to the width they read.
HEADS_TIED_TO_INPUT: tuple[type[nn.Module], ...] = (nn.MultiheadAttention,)
