"""What the table says a small change of an attention layer would free."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import meristem
from nets.common import Residual, seq

TOKENS = torch.randint(0, 17, (2, 6))


class Viewed(nn.Module):
    """Splits and views with the width it reads; ``scale`` is kept, or computed from the size of a head (None)."""

    def __init__(self, scale: float | str | None) -> None:
        super().__init__()
        self.n_embd, self.n_head, self.scale = 24, 4, scale
        self.c_attn, self.c_proj = nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        parts = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (part.view(b, n, self.n_head, c // self.n_head).transpose(1, 2) for part in parts)
        if self.scale == "a tensor":
            out = torch.softmax(q @ k.transpose(-2, -1) / torch.tensor(k.size(-1)).sqrt(), -1) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.c_proj(out.transpose(1, 2).reshape(b, n, c))


def traced(scale: float | str | None) -> meristem.Space:
    blocks = [Residual(seq(norm=nn.LayerNorm(24), attn=Viewed(scale))) for _ in range(2)]
    return meristem.trace(nn.Sequential(nn.Embedding(17, 24), *blocks, nn.Linear(24, 3)), TOKENS)


def test_heads_of_their_own_would_need_the_size_of_a_head_in_an_attribute() -> None:
    """Whether the scale is kept or follows: a dimension of each head is free with its share of the embedding."""
    for scale in (0.4, None):
        space = traced(scale)
        assert space.full == {"0:heads": 4, "0": 6}
        (tied,) = space.notes
        assert tied.startswith(
            "1.body.attn and 1 more: its heads are those of all such layers and of the width it reads"
        )
        assert "self.head_dim" in tied
        assert tied in str(space)


def test_a_kept_scale_would_free_the_size_of_heads() -> None:
    space = traced("a tensor")
    assert space.full == {"0:heads": 4}
    _, sized = space.notes
    assert sized.startswith("1.body.attn and 1 more: the size of its heads is pinned")
    assert "self.scale" in sized
