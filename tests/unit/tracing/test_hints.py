"""What the table says a small change of an attention layer would free."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import meristem
from nets.common import Residual, seq

TOKENS = torch.randint(0, 17, (2, 6))


class Viewed(nn.Module):
    """Splits and views with the width it reads; ``scale`` is kept, or computed from the size of a head."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.n_embd, self.n_head, self.scale = 24, 4, 0.4 if kept else None
        self.c_attn, self.c_proj = nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        parts = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (part.view(b, n, self.n_head, c // self.n_head).transpose(1, 2) for part in parts)
        out = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.c_proj(out.transpose(1, 2).reshape(b, n, c))


def traced(kept: bool) -> meristem.Space:
    blocks = [Residual(seq(norm=nn.LayerNorm(24), attn=Viewed(kept))) for _ in range(2)]
    return meristem.trace(nn.Sequential(nn.Embedding(17, 24), *blocks, nn.Linear(24, 3)), TOKENS)


def test_a_kept_scale_would_free_the_size_of_heads() -> None:
    space = traced(kept=False)
    assert space.full == {"0:heads": 4}
    tied, sized = space.notes
    assert tied.startswith("1.body.attn and 1 more: its heads and the width it reads are one group")
    assert sized.startswith("1.body.attn and 1 more: the size of its heads is pinned")
    assert "scale=self.scale" in sized
    assert sized in str(space)


def test_the_size_of_heads_is_free_where_the_scale_is_kept() -> None:
    space = traced(kept=True)
    assert space.full == {"0:heads": 4, "0": 6}
    (tied,) = space.notes
    assert "self.head_dim" in tied
