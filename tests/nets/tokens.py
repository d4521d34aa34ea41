"""Parts of the zoo that work on vectors, tokens and sequences."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nets.common import Residual, mlp, seq

# --- linear and bare parameters -----------------------------------------------------------------------------


class BareParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 8)
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.bias = nn.Parameter(torch.randn(8))
        self.mix = nn.Parameter(torch.randn(8, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x)) * self.scale + self.bias
        return self.head(F.relu(x @ self.mix))


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(8, 5))
        self.w2 = nn.Parameter(torch.randn(8, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(torch.einsum("bni,hi->bnh", x, self.w1))
        return self.head(F.gelu(torch.einsum("bnh,ho->bno", hidden, self.w2)))


class SwiGLU(nn.Module):
    """Gate and value come out of one matrix, split on the last dimension."""

    def __init__(self, c: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(c, 2 * hidden)
        self.down = nn.Linear(hidden, c)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * value)


class RMSNorm(nn.Module):
    """By hand: its mean runs across units."""

    def __init__(self, c: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(c) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


# --- attention ----------------------------------------------------------------------------------------------


class FusedAttention(nn.Module):
    """One qkv matrix, scaled_dot_product_attention, an optional mask that is a buffer."""

    def __init__(self, c: int, num_heads: int, head_dim: int, causal: int = 0):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.qkv = nn.Linear(c, 3 * num_heads * head_dim)
        self.proj = nn.Linear(num_heads * head_dim, c)
        self.register_buffer("mask", torch.ones(causal, causal, dtype=torch.bool).tril() if causal else None)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mask = None if self.mask is None else self.mask[:n, :n]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(out.transpose(1, 2).reshape(b, n, self.num_heads * self.head_dim))


class MatmulAttention(nn.Module):
    """Separate q, k, v; matmul, softmax, matmul."""

    def __init__(self, c: int, num_heads: int, head_dim: int):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.q, self.k, self.v = (nn.Linear(c, num_heads * head_dim) for _ in range(3))
        self.proj = nn.Linear(num_heads * head_dim, c)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (p(x).view(b, n, self.num_heads, self.head_dim).transpose(1, 2) for p in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-2, -1) * self.head_dim**-0.5, -1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class ValueDimAttention(nn.Module):
    """Values have a width of their own, and no forward names it: free inside every head."""

    def __init__(self, c: int, num_heads: int, head_dim: int, value_dim: int):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.q, self.k = (nn.Linear(c, num_heads * head_dim) for _ in range(2))
        self.v = nn.Linear(c, num_heads * value_dim)
        self.proj = nn.Linear(num_heads * value_dim, c)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k = (p(x).view(b, n, self.num_heads, self.head_dim).transpose(1, 2) for p in (self.q, self.k))
        v = self.v(x).view(b, n, self.num_heads, -1).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).flatten(2))


class GroupedQueryAttention(nn.Module):
    """Two query heads share one key and value head."""

    def __init__(self, c: int, num_heads: int, num_kv_heads: int, head_dim: int):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.q = nn.Linear(c, num_heads * head_dim, bias=False)
        self.k, self.v = (nn.Linear(c, num_kv_heads * head_dim, bias=False) for _ in range(2))
        self.proj = nn.Linear(num_heads * head_dim, c, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q = self.q(x).view(b, n, self.num_heads, self.head_dim).transpose(1, 2)
        k, v = (p(x).view(b, n, self.num_kv_heads, self.head_dim).transpose(1, 2) for p in (self.k, self.v))
        k, v = (t.repeat_interleave(self.num_heads // self.num_kv_heads, 1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(b, n, -1))


class HardViewAttention(nn.Module):
    """Four heads of eight, written as numbers in the forward: nothing of it can be resized."""

    def __init__(self, c: int):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(c, 32) for _ in range(3))
        self.proj = nn.Linear(32, c)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (p(x).view(b, n, 4, 8).transpose(1, 2) for p in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(b, n, 32))


class TorchAttention(nn.Module):
    def __init__(self, c: int, num_heads: int):
        super().__init__()
        self.attn = nn.MultiheadAttention(c, num_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attn(x, x, x, need_weights=False)[0]


class NanoAttention(nn.Module):
    """As nanoGPT has it: it views with the width that it reads, and the scale follows the size of a head."""

    def __init__(self, c: int, n_head: int, longest: int = 0):
        super().__init__()
        self.n_embd, self.n_head = c, n_head
        self.c_attn, self.c_proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        if longest:  # by hand, with a mask for longer texts than it is traced with
            self.register_buffer("bias", torch.ones(1, 1, longest, longest).tril())
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.size()
        parts = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (part.view(b, n, self.n_head, c // self.n_head).transpose(1, 2) for part in parts)
        if self.bias is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.bias[:, :, :n, :n] == 0, float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, n, c))


def block(c: int, attention: nn.Module, ffn: nn.Module, norm: Callable[[int], nn.Module] = nn.LayerNorm) -> nn.Module:
    """A pre-norm transformer block."""
    return seq(attn=Residual(seq(norm=norm(c), attn=attention)), ffn=Residual(seq(norm=norm(c), ffn=ffn)))


class TokenNet(nn.Module):
    """Vectors in, blocks, mean over tokens, classes out."""

    def __init__(self, c: int, *blocks: nn.Module):
        super().__init__()
        self.embed = nn.Linear(5, c)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(c)
        self.head = nn.Linear(c, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x))).mean(1))


class ViT(nn.Module):
    def __init__(self, c: int = 12):
        super().__init__()
        self.patch = nn.Conv2d(3, c, 4, stride=4)
        self.cls = nn.Parameter(torch.randn(1, 1, c))
        self.pos = nn.Parameter(torch.randn(1, 5, c))
        self.blocks = nn.Sequential(*(block(c, FusedAttention(c, 3, 4), mlp(c, 16, c)) for _ in range(2)))
        self.norm = nn.LayerNorm(c)
        self.head = nn.Linear(c, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


class GPT(nn.Module):
    """The input embedding is also the output matrix."""

    def __init__(self, c: int = 8, vocab: int = 11, context: int = 6, *attentions: nn.Module):
        super().__init__()
        self.tok = nn.Embedding(vocab, c)
        self.pos = nn.Embedding(context, c)
        attentions = attentions or (FusedAttention(c, 2, 4, causal=context),)
        self.blocks = nn.Sequential(*(block(c, attention, mlp(c, 16, c)) for attention in attentions))
        self.norm = nn.LayerNorm(c)
        self.head = nn.Linear(c, vocab, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, idx: Tensor) -> Tensor:
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device))
        return self.head(self.norm(self.blocks(x)))


def nano_gpt(longest: int = 0) -> nn.Module:
    return GPT(12, 11, 9, *(NanoAttention(12, 4, longest) for _ in range(2)))


class Places(nn.Module):
    """A parameter with a row for each place, more than the inputs have."""

    def __init__(self) -> None:
        super().__init__()
        self.tok, self.pos, self.head = nn.Embedding(11, 8), nn.Parameter(torch.randn(1, 9, 8)), nn.Linear(8, 3)

    def forward(self, idx: Tensor) -> Tensor:
        return self.head(torch.tanh(self.tok(idx) + self.pos[:, : idx.shape[1]]))


class Reduced(nn.Module):
    """As SegFormer has it: tokens are an image for a convolution, which is viewed with the width that it reads."""

    def __init__(self, c: int, side: int):
        super().__init__()
        self.side, self.conv, self.norm, self.proj = (
            side,
            nn.Conv2d(c, c, 2, stride=2),
            nn.LayerNorm(c),
            nn.Linear(c, c),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        y = x.transpose(1, 2).reshape(b, c, self.side, n // self.side)
        y = self.norm(self.conv(y).reshape(b, c, -1).transpose(1, 2))
        return self.proj(torch.softmax(x @ y.transpose(1, 2), -1) @ y)


def llama(c: int = 8, vocab: int = 11) -> nn.Module:
    layer = block(c, GroupedQueryAttention(c, 4, 2, 4), SwiGLU(c, 12), RMSNorm)
    return seq(tok=nn.Embedding(vocab, c), layer=layer, norm=RMSNorm(c), head=nn.Linear(c, vocab, bias=False))


class Transposed(nn.Module):
    """Runs a module with tokens and channels exchanged."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


# --- what once was wrong in silence -------------------------------------------------------------------------


class WrittenFlags(nn.Module):
    """Constants, some of which are overwritten by position, and a way that only wide layers take."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three, self.head = nn.Linear(5, 8), nn.Linear(8, 6), nn.Linear(6, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        flags = x.new_ones(x.shape[1])
        flags[::2] = -1
        x = self.two(x * flags)
        x = F.relu(x) if x.shape[1] >= 5 else x
        return self.head(torch.tanh(self.three(x)))
