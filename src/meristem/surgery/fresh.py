"""What fresh units start with (docs/equations.md, section Fresh units). Pure functions of tensors.

A rule answers two questions. ``incoming``: the weights of fresh units in the layers that make them. ``outgoing``: the
weights of old and of fresh units in the layers that read them. In both the units lie along dimension 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class LayerPart(Enum):
    """The role of a tensor in its layer."""

    WEIGHT = "weight"  # of a convolution that is not grouped, or of a linear layer; outputs lie along dimension 0
    BIAS = "bias"  # of the same
    SCALE = "scale"  # of a batch norm
    SHIFT = "shift"


class Fresh(Protocol):
    """A rule for fresh units, and for fresh blocks where it has one."""

    def incoming(self, fresh: Tensor) -> Tensor: ...

    def outgoing(self, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]: ...

    def last_norm(self, name: str, built: Tensor, seed: int) -> Tensor | None:
        """Return the scale, or the shift, of the last batch norm of a fresh block; None: as any other tensor."""
        ...

    def plain(self, part: LayerPart, built: Tensor) -> Tensor | None:
        """Return a tensor of a fresh block without a shortcut; ``built`` are its initial values. None: as any other."""
        ...


class NoRuleForBlocks:
    """The part of a rule that treats blocks as any other units."""

    def last_norm(self, name: str, built: Tensor, seed: int) -> Tensor | None:
        return None

    def plain(self, part: LayerPart, built: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True)
class AsBuilt(NoRuleForBlocks):
    """The model's own initial values, whatever scheme made them."""

    def incoming(self, fresh: Tensor) -> Tensor:
        return fresh

    def outgoing(self, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        return old, fresh


@dataclass(frozen=True)
class ZeroOutgoing(NoRuleForBlocks):
    """Fresh units are read with zeros: growing does not change the function.

    A fresh block without a shortcut passes on what it is given, as far as it can (Eq. Plain): the n-th output of a
    layer is its n-th input, and a norm shifts by one, so that next to nothing of what follows a ReLU is cut off by the
    next one. Outputs for which there is no input are as built.

    >>> ZeroOutgoing().outgoing(torch.ones(1, 2), torch.ones(2, 2))[1].tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    >>> ZeroOutgoing().plain(LayerPart.WEIGHT, torch.full((3, 2), 0.5)).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    """

    def incoming(self, fresh: Tensor) -> Tensor:
        return fresh

    def outgoing(self, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        return old, torch.zeros_like(fresh)

    def plain(self, part: LayerPart, built: Tensor) -> Tensor | None:
        if part is not LayerPart.WEIGHT:
            return torch.full_like(built, part is not LayerPart.BIAS)
        passed = torch.arange(min(built.shape[:2]), device=built.device)
        places: tuple[Tensor | int, ...] = (passed, passed, *(size // 2 for size in built.shape[2:]))
        weight = built.clone()
        weight[: len(passed)] = 0
        weight[places] = 1
        return weight


@dataclass(frozen=True)
class VarianceTransfer(NoRuleForBlocks):
    """Keep the variance of what is read: old weights shrink by sqrt(old / new), fresh units come in cancelling pairs.

    >>> old, fresh = VarianceTransfer().outgoing(torch.ones(1, 1), torch.tensor([[1.0], [5.0], [2.0]]))
    >>> old.tolist(), fresh.tolist()
    ([[0.5]], [[1.0], [-1.0], [0.0]])
    """

    def incoming(self, fresh: Tensor) -> Tensor:
        paired = fresh.clone()
        pairs = len(fresh) // 2
        paired[1 : 2 * pairs : 2] = fresh[0 : 2 * pairs : 2]
        return paired

    def outgoing(self, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        scale = (len(old) / (len(old) + len(fresh))) ** 0.5
        paired = self.incoming(fresh)
        paired[1 : 2 * (len(fresh) // 2) : 2] *= -1
        if len(fresh) % 2:
            paired[-1] = 0
        return old * scale, paired


@dataclass(frozen=True)
class RandomLastNorm(AsBuilt):
    """AutoGrow's start of a block: as built, but scale and shift of its last batch norm are drawn from N(0, 1).

    >>> RandomLastNorm().last_norm("block.norm.weight", torch.ones(4), seed=0).std().item() > 0
    True
    """

    def last_norm(self, name: str, built: Tensor, seed: int) -> Tensor | None:
        # From the name and the seed alone: it does not matter when the block comes in, nor whether a run was resumed.
        drawn = np.random.default_rng((seed, zlib.crc32(name.encode()))).standard_normal(tuple(built.shape))
        return torch.from_numpy(drawn).to(built)


# The names by which a method's text chooses one.
FRESH_RULES: Mapping[str, Fresh] = {
    "zero-outgoing": ZeroOutgoing(),
    "as-built": AsBuilt(),
    "variance-transfer": VarianceTransfer(),
    "random-last-norm": RandomLastNorm(),
}
