"""The pre-norm transformer block that GPT and ViT are made of (Vaswani et al. 2017, Xiong et al. 2020)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

_WIDER = 4  # times: the two layers for each token between them
_STD = 0.02


class Attention(nn.Module):
    """Self-attention. The forward names the size of a head and never their number, so that whole heads can go.

    Shapes: B sequences, T tokens, H heads, D the size of a head.
    """

    def __init__(self, channels: int, heads: int, causal: bool) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(f"{channels} channels cannot be shared evenly by {heads} heads")
        self.head_size, self.causal = channels // heads, causal
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        qkv_3BHTD = self.qkv(x).view(batch, tokens, 3, -1, self.head_size).permute(2, 0, 3, 1, 4)
        q, k, v = qkv_3BHTD.unbind(0)
        mixed_BHTD = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: Tensor = self.proj(mixed_BHTD.transpose(1, 2).reshape(batch, tokens, -1))
        return out


class TransformerBlock(nn.Module):
    """Attention, then two layers for each token; what they say is added to the stream, so the block may be absent."""

    def __init__(self, channels: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attention = Attention(channels, heads, causal)
        self.norm2 = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, _WIDER * channels)
        self.down = nn.Linear(_WIDER * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return out


def init_transformer_(network: nn.Module, blocks: int) -> None:
    """Weights as GPT-2 has them: normal of 0.02, in the layers that add to the stream smaller by sqrt(2 blocks)."""
    for name, module in network.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            adds = name.endswith((".proj", ".down"))
            nn.init.normal_(module.weight, std=_STD / (2 * blocks) ** 0.5 if adds else _STD)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
